"""Runs a measuring campaign on the configured engine."""
