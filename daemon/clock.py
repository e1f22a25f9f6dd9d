"""Unix time that never goes back: windows and event times hold across a correction of the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 as of now, carried on by the monotonic clock."""
    offset_s = time.time() - time.monotonic()
    return lambda: offset_s + time.monotonic()
