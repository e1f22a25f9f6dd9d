"""Counts over sliding windows, in constant memory; their sums are kept as they change."""

from __future__ import annotations

from array import array


class CountWindow:
    """`columns` counters over the last `slots * slot_s` seconds. `now_s` must not go back."""

    def __init__(self, columns: int, *, slots: int, slot_s: float) -> None:
        self._slot_s = slot_s
        self._slots = slots
        self._columns = [array("L", bytes(8 * slots)) for _ in range(columns)]
        self._totals = [0] * columns
        self._now_slot = 0

    def add(self, column: int, count: int, now_s: float) -> None:
        self._roll(now_s)
        self._columns[column][self._now_slot % self._slots] += count
        self._totals[column] += count

    def restore(self, column: int, count: int, *, at_s: float, now_s: float) -> None:
        """Count what happened at `at_s`, if that is within the window."""
        self._roll(now_s)
        slot = int(at_s / self._slot_s)
        if self._now_slot - self._slots < slot <= self._now_slot:
            self._columns[column][slot % self._slots] += count
            self._totals[column] += count

    def sums(self, now_s: float, window_s: float | None = None) -> tuple[int, ...]:
        """The counters over the last `window_s` seconds (None: all that is kept), to a slot's precision."""
        self._roll(now_s)
        wanted = self._slots if window_s is None else round(window_s / self._slot_s)
        if wanted >= self._slots or not any(self._totals):
            return tuple(self._totals)
        # The ring from the oldest slot that is wanted to the newest: one piece, or two around its end.
        end = self._now_slot % self._slots + 1
        start = end - wanted
        return tuple(
            sum(c[max(0, start) : end]) + (sum(c[start:]) if start < 0 else 0) for c in self._columns
        )

    def _roll(self, now_s: float) -> None:
        slot = int(now_s / self._slot_s)
        passed = min(slot - self._now_slot, self._slots)
        self._now_slot = max(slot, self._now_slot)
        if passed <= 0 or not any(self._totals):
            return
        for back in range(passed):
            at = (slot - back) % self._slots
            for index, column in enumerate(self._columns):
                if column[at]:
                    self._totals[index] -= column[at]
                    column[at] = 0
