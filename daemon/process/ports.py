"""Where an engine listens, and a server of a test or a script."""

from __future__ import annotations

import contextlib
import random
import socket

PORTS = range(10_000, 20_000)
"""Below those that Linux gives to clients, and below 22,000 to 29,999, where SGLang looks for ports that it
uses only later."""


def free_port() -> int:
    """A port that nobody listens on now, and that no client is given later: a server takes a while to listen.

    Raises: OSError if there is none.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError(f"no port of {PORTS.start} to {PORTS.stop - 1} is free")
