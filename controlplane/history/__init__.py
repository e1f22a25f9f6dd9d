"""What was served, kept: per second in memory, per minute, hour and day in the database."""
