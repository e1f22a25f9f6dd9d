"""The Partitions screen."""
