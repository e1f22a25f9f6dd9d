"""The Guard screen."""
