"""Asks the kernel whether something keeps the clock right: adjtimex(2), reading only."""

from __future__ import annotations

import ctypes

_TIME_ERROR = 5
"""The return value of adjtimex for a clock that is not synchronised."""
_TIMEX_BYTES = 256
"""More than `struct timex` has (208 bytes on 64-bit Linux); zeros mean: change nothing."""


def is_synchronised() -> bool | None:
    """Whether the kernel takes the clock for synchronised; None if it does not say."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state: int = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR
