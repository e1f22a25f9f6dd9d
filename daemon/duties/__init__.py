"""What the daemon does by itself, again and again: it stores, learns, deletes what is old, looks and caps."""
