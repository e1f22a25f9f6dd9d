"""The two listeners and what they serve beyond the gateway: actions, probes, load, the first welcome."""
