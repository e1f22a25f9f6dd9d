"""Counts over sliding windows, in constant memory."""

from __future__ import annotations

from array import array


class CountWindow:
    """`columns` counters over the last `slots * slot_s` seconds. `now_s` must not go back."""

    def __init__(self, columns: int, *, slots: int, slot_s: float) -> None:
        self._slot_s = slot_s
        self._slots = slots
        self._columns = [array("L", bytes(8 * slots)) for _ in range(columns)]
        self._now_slot = 0

    def add(self, column: int, count: int, now_s: float) -> None:
        """Count."""
        self._roll(now_s)
        self._columns[column][self._now_slot % self._slots] += count

    def sums(self, now_s: float, window_s: float | None = None) -> tuple[int, ...]:
        """The counters over the last `window_s` seconds (None: all that is kept), to a slot's precision."""
        self._roll(now_s)
        if window_s is None:
            return tuple(map(sum, self._columns))
        wanted = [
            (self._now_slot - back) % self._slots
            for back in range(min(self._slots, round(window_s / self._slot_s)))
        ]
        return tuple(sum(column[slot] for slot in wanted) for column in self._columns)

    def _roll(self, now_s: float) -> None:
        slot = int(now_s / self._slot_s)
        for back in range(min(slot - self._now_slot, self._slots)):
            for column in self._columns:
                column[(slot - back) % self._slots] = 0
        self._now_slot = max(slot, self._now_slot)
