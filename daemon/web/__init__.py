"""The console in a browser: `pdmuxd web-console`."""
