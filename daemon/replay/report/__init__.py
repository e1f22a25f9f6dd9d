"""The HTML report: one file that works offline."""
