"""This node as others see it: its engine's state, the actions that it offers, what it sends to the engine."""
