"""Screen 6: the engine's state, what can be done to it, and its log."""
