"""The stream of events: what is told, the buffer that all clients share, and how it travels."""
