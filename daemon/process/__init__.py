"""The process itself: its lock, logs, signals, clock, tasks, small files, and what it tells systemd."""
