"""Faults that `chaos.py` does to a daemon on loopback."""
