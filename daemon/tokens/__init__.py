"""Tokens that come straight from the scheduler, as text in the client's stream."""
