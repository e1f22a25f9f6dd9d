"""When the last bytes of a request came in, by the kernel: a process that is late reads them later."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

ARRIVED = "pdmuxd.arrived_s"
"""In a request's scope: when its body was complete, by the monotonic clock."""
_LAST_DATA_RECV = 52
"""Where `tcpi_last_data_recv` is in Linux's `struct tcp_info`: milliseconds since bytes came, as exact as
the kernel's tick (1 to 10 ms)."""
_SIZE = _LAST_DATA_RECV + 4


def arrival_s(transport: Any, clock: Callable[[], float] = time.monotonic) -> float:  # noqa: ANN401 - uvloop's
    """When the newest bytes of a connection came, which have just been read; now where that is not known."""
    now_s = clock()
    connection = transport.get_extra_info("socket")
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
        return now_s - float(struct.unpack_from("=I", info, _LAST_DATA_RECV)[0]) / 1000
    except (AttributeError, OSError, struct.error):  # no TCP, or not Linux
        return now_s


def arrived_s(scope: Mapping[str, Any]) -> float:
    """When the whole body of a request was there."""
    found: float | None = scope.get(ARRIVED)
    return time.monotonic() if found is None else found
