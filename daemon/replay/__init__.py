"""Replay a recorded trace in virtual time and report how each policy would have served it."""
