"""The link: one Unix socket between an engine process and the daemon (messages, socket ends)."""
