"""How much was used in the last minute.

This is our own code because no maintained library does all of it: replace what was reserved by what was
really used, let requests wait in order, and say when there will be room again.
"""

from __future__ import annotations

WINDOW_S = 60


class SlidingWindow:
    """Amounts of the last 60 seconds, kept by the second in which they came.

    A second leaves the window as a whole, once its last instant is 60 s ago: so in no 60 s there is more
    than the window ever showed. Times are seconds of any clock that does not go back.
    """

    __slots__ = ("_slots", "_total")

    def __init__(self) -> None:
        # There are many windows: an empty deque takes 600 bytes, and the garbage collector does not look at
        # tuples of numbers again.
        self._slots: list[tuple[int, int]] = []
        self._total = 0

    def add(self, amount: int, now_s: float) -> None:
        """Count what was used now."""
        second = int(now_s)
        if self._slots and self._slots[-1][0] == second:
            self._slots[-1] = second, self._slots[-1][1] + amount
        else:
            self._slots.append((second, amount))
        self._total += amount

    def total(self, now_s: float) -> int:
        """The sum of the window."""
        while self._slots and now_s >= _end_s(self._slots[0][0]):
            self._total -= self._slots.pop(0)[1]
        return self._total

    def peek(self, now_s: float) -> int:
        """The same, but nothing is forgotten by it, so any thread may ask."""
        return sum(amount for second, amount in tuple(self._slots) if now_s < _end_s(second))

    def until(self, at_most: int, now_s: float) -> float:
        """Seconds until no more than `at_most` (0 or above) is in the window, if nothing is added."""
        left = self.total(now_s)
        for second, amount in self._slots:
            if left <= at_most:
                break
            left -= amount
            end_s = _end_s(second)
            if left <= at_most:
                return end_s - now_s
        return 0.0


def _end_s(second: int) -> int:
    return second + 1 + WINDOW_S
