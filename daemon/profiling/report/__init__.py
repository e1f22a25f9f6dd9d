"""The report of a profile: one HTML page."""
