"""The systemd unit and what belongs to it (user, directories, sockets, credential), and installing them."""
