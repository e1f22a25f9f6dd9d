"""Profiling a model on a GPU: what to measure next, and what the measurements say."""
