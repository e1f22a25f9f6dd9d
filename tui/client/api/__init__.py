"""The typed client of `/api/v1` behind `pdmuxd.client`, the console and the command line."""
