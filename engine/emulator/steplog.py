"""The log of decode step end times, from which the instants of all tokens are cut."""

from __future__ import annotations

from array import array

MAX_STEPS = 1 << 20
"""Beyond this a log that need not be kept is trimmed: two hours at 150 steps/s, 8 MB."""
_KEPT_STEPS = 1 << 12
"""Behind those that are trimmed: tokens of a request that has ended may be on their way to the client.
27 s at 150 steps/s."""


class StepLog:
    """End time in seconds of every decode step, by step index since the start."""

    def __init__(self, *, keep_all: bool) -> None:
        self._keep_all = keep_all
        self._ends_s = array("d")
        self._first = 0

    @property
    def is_long(self) -> bool:
        """Whether it is time to trim."""
        return not self._keep_all and len(self._ends_s) > MAX_STEPS

    def append(self, end_s: float) -> None:
        self._ends_s.append(end_s)

    def between(self, start: int, stop: int) -> array[float]:
        """The end times of steps `start` to `stop`, the latter excluded."""
        return self._ends_s[start - self._first : stop - self._first]

    def trim(self, first: int) -> None:
        """Forget the steps before `first`, but for the last of them."""
        first = max(self._first, first - _KEPT_STEPS)
        del self._ends_s[: first - self._first]
        self._first = first
