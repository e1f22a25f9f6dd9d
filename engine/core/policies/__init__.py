"""Policies: each turns an observation into a decision; `registry` knows them by name."""
