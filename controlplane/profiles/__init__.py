"""Profiles in the store: what was measured, which is in force, and what was learned since."""
