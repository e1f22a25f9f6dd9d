"""Measuring engines against each other: the command `pdmuxd bench`, and the project's own plans behind it."""
