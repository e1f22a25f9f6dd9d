"""How long a worker thread keeps Python's lock from the event loop, which serves streams, while both run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERVAL_S = 0.0005
"""Measured with 0.2, 0.5 and 5 ms: `docs/decisions/0051-a-file-says-all-of-a-tenant.md`."""


@contextmanager
def giving_way() -> Iterator[None]:
    """Let other threads in after INTERVAL_S in place of Python's 5 ms.

    The loop gives the lock up at every read and write of a socket, and gets it back only when the worker's
    interval is over: a token that takes six of them waits six intervals. While only the loop runs, nothing is
    another.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
