"""Compare policies in virtual time: the highest rate that each one holds, and why."""
