"""What the console knows: events reduced to a state, its history, and how far behind it is."""
