"""The daemon: command line, settings, gateway, supervisor, metrics, replay."""
