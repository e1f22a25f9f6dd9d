"""What a request may say: a table of fields for each path, checked before anything reaches the engine."""
