"""Engines: the decision core, the emulated GPU, and the link between an engine and the daemon."""
