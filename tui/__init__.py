"""The console: `pdmuxd top`, a client of the REST interface and its event stream."""
