"""What the engine and the gateway report, kept for a while and summed up. Bounded in memory, no clock."""
