"""Screen 1: are targets met, where do the SMs go, and why."""
