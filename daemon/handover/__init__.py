"""A daemon gives its place to a new one: listening sockets, state directory, engine; requests go on."""
