"""Screen 5: the log of decisions, and requests by id."""
