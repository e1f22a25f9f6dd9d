"""What is measured: ways to run an engine, their processes, and the daemon's end of their link."""
