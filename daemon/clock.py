"""Unix time that never goes back, so that windows and event times stay right when the wall clock is
corrected."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 as of now, carried on by the monotonic clock."""
    offset_s = time.time() - time.monotonic()
    return lambda: offset_s + time.monotonic()
