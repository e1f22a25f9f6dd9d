"""pdmuxd as a service of systemd: its units, and installing them."""
