"""Checks of the machine and the installation; each gives findings and has no side effects."""
