"""What is asked of an engine, and what became of it: requests, the client that sends them, figures."""
