"""The contention guard as the engine's decisions show it: what each cell holds, and what was observed."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from pdmuxd.engine.core.guard import GuardCell, guard_cell
from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.link.messages import IterationRecord

MAX_CELLS = 4096
_RECENT = 64


@dataclass(slots=True, kw_only=True)
class CellView:
    """One cell; `observed` are the latest slowdowns, measured over predicted alone."""

    ratio: float
    changed_s: float
    samples: int = 0
    raised: bool = False
    observed_max_ratio: float | None = None
    observed: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))


class GuardView:
    """Cells that decisions have used, the least recently used dropped first. `snapshot`: any thread."""

    def __init__(self) -> None:
        self._cells: OrderedDict[GuardCell, CellView] = OrderedDict()

    def forget(self) -> None:
        """Another engine starts with a guard of its own."""
        self._cells = OrderedDict()

    def add(self, record: IterationRecord, now_s: float) -> None:
        """Learn from a decode step beside a prefill; other steps tell nothing."""
        if record.mode != Mode.SPLIT or record.guard_ratio is None or not record.prefill_new_tokens:
            return
        cell = guard_cell(record.decode_sms, record.prefill, record.decode)
        view = self._cells.get(cell)
        if view is None:
            view = self._cells[cell] = CellView(ratio=record.guard_ratio, changed_s=now_s)
            if len(self._cells) > MAX_CELLS:
                self._cells.popitem(last=False)
        elif view.ratio != record.guard_ratio:
            view.raised = record.guard_ratio > view.ratio
            view.ratio, view.changed_s = record.guard_ratio, now_s
        self._cells.move_to_end(cell)
        view.samples += 1
        if record.measured_decode_s is not None and record.predicted_decode_s:
            observed = record.measured_decode_s / record.predicted_decode_s
            view.observed.append(observed)
            view.observed_max_ratio = max(view.observed_max_ratio or 0.0, observed)

    def ratio(self, cell: GuardCell) -> float | None:
        """What the engine last used for a cell; None if it has not used it."""
        view = self._cells.get(cell)
        return None if view is None else view.ratio

    def snapshot(self) -> tuple[tuple[GuardCell, CellView], ...]:
        return tuple(self._cells.items())
