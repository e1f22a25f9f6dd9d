"""The project's own measurements, a command each: `pdmuxd bench NAME`."""
