"""Keeps one engine process running, gives it its settings and listens to what it reports."""
