"""Keeps a profile true while serving: raises guard cells at once, lowers them slowly, corrects predictors.

Fed with every step that the engine reports; asked now and then for what has changed. Pure but for its own
memory: instants are arguments. Source: MuxWise section 3.3.2 (online refinement of the guard); the
lowering and the corrections are ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.ma  # or the first quantile imports it and stops all tokens for 41 ms (one H200, 2026-11-28)

from pdmuxd.engine.core.guard import MAX_RATIO, GuardCell, guard_cell
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.core.types import DecodeShape, Mode
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.profiling.corrections import Change, Corrections

LOWER_AFTER = 300
"""So many steps in a cell must all be within its bound before the bound may come down."""
LOWER_EVERY_S = 60.0
LOWER_SHARE = 0.25
"""Of the way to the quantile, per lowering."""
QUANTILE, MARGIN = 0.995, 1.02
"""Bounds come down towards this quantile of what was seen, and a little above it."""
WORTH_IT = 0.01
"""Changes smaller than this are not made."""

_KEPT = 1024
_SHOWN_MS = 1000.0


@dataclass(slots=True, kw_only=True)
class _Cell:
    ratio: float
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    within: int = 0
    """Steps since the last change."""
    lowered_s: float = 0.0
    raised_from: float | None = None
    """The bound when changes were last asked for, if it was raised since."""
    evidence: str = ""


class Refiner:
    """What is known of one profile in force, and what serving adds to it."""

    def __init__(self, predictors: Predictors, model: SoloRunModel, *, layers: int, now_s: float) -> None:
        self.predictors = predictors
        self._layers = layers
        self._model = model
        self._cells: dict[GuardCell, _Cell] = {}
        self._bounds = dict(predictors.guard_cells)
        self._corrections = Corrections()
        self._corrections.adopt(predictors.corrections, now_s)

    @property
    def at_bound(self) -> tuple[str, ...]:
        """The predictors whose corrections would have to go further than is allowed."""
        return self._corrections.at_bound

    def adopt(self, predictors: Predictors, model: SoloRunModel, now_s: float) -> None:
        """The same profile with other values: this refiner's own changes, an operator's reset or freeze."""
        before = dict(self.predictors.guard_cells)
        after = dict(predictors.guard_cells)
        for cell in before.keys() | after.keys():
            if before.get(cell) != after.get(cell) and cell in self._cells:
                known = self._cells[cell]
                if known.raised_from is None:
                    known.ratio = after.get(cell, predictors.guard_default_ratio)
        self.predictors, self._model, self._bounds = predictors, model, after
        self._corrections.adopt(predictors.corrections, now_s)

    def observe(self, record: IterationRecord, now_s: float) -> None:
        """Learn from one step. A frozen profile learns nothing."""
        if self.predictors.guard_frozen:
            return
        if record.mode == Mode.FUSED:
            self._observe_fused(record, now_s)
        elif record.mode == Mode.SPLIT:
            if record.measured_decode_s is not None and record.decode_bs:
                self._observe_decode(record, record.measured_decode_s, now_s)
            if record.measured_prefill_s is not None and record.prefill_layers and self._layers:
                self._observe_prefill(record, record.measured_prefill_s, now_s)

    def changes(self, now_s: float) -> tuple[Change, ...]:
        """The changes since the last time; they count as in force from here on."""
        if self.predictors.guard_frozen:
            return ()
        return (*self._raised(), *self._lowered(now_s), *self._corrections.changes(now_s))

    # --- observing

    def _observe_prefill(self, record: IterationRecord, measured_s: float, now_s: float) -> None:
        share = record.prefill_layers / self._layers
        predicted_s = self._model.prefill_s(record.prefill, record.prefill_sms) * share
        if predicted_s > 0.0:
            self._corrections.alone("prefill", record.prefill_sms, measured_s / predicted_s, now_s)

    def _observe_fused(self, record: IterationRecord, now_s: float) -> None:
        """A step without prompt tokens is a decode step, however it was decided."""
        # A fused batch has all SMs, on whichever side of the group the engine counts them.
        sms = max(record.prefill_sms, record.decode_sms)
        if not record.prefill_new_tokens or sms not in self._model.fused:
            return
        predicted_s = self._model.fused_s(record.prefill, record.decode, sms)
        if predicted_s > 0.0:
            self._corrections.alone("fused", sms, record.device_step_s / predicted_s, now_s)

    def _observe_decode(self, record: IterationRecord, measured_s: float, now_s: float) -> None:
        shape = record.decode
        predicted_s = self._model.decode_s(shape, record.decode_sms)
        if predicted_s <= 0.0:
            return
        ratio = measured_s / predicted_s
        if not record.prefill_new_tokens:
            self._corrections.alone("decode", record.decode_sms, ratio, now_s)
            return
        self._corrections.colocated("decode", record.decode_sms, ratio, now_s)
        self._observe_cell(record, shape, ratio, measured_s, predicted_s)

    def _observe_cell(
        self, record: IterationRecord, shape: DecodeShape, ratio: float, measured_s: float, predicted_s: float
    ) -> None:
        cell = guard_cell(record.decode_sms, record.prefill, shape)
        known = self._cells.get(cell)
        if known is None:
            bound = self._bounds.get(cell, self.predictors.guard_default_ratio)
            known = self._cells[cell] = _Cell(ratio=bound)
        known.seen.append(ratio)
        known.within += 1
        if ratio > known.ratio and known.ratio < MAX_RATIO:
            known.raised_from = known.ratio if known.raised_from is None else known.raised_from
            known.ratio = min(ratio, MAX_RATIO)
            known.within = 0
            known.evidence = (
                f"a step of {measured_s * _SHOWN_MS:.2f} ms, {predicted_s * _SHOWN_MS:.2f} ms predicted alone"
            )

    # --- concluding

    def _raised(self) -> Iterator[Change]:
        for cell, known in self._cells.items():
            if known.raised_from is not None:
                before, known.raised_from = known.raised_from, None
                yield Change(
                    kind="raised", cell=cell, before=before, after=known.ratio, evidence=known.evidence
                )

    def _lowered(self, now_s: float) -> Iterator[Change]:
        for cell, known in self._cells.items():
            if known.within < LOWER_AFTER or now_s - known.lowered_s < LOWER_EVERY_S:
                continue
            recent = list(known.seen)[-known.within :]
            goal = max(1.0, float(np.quantile(recent, QUANTILE)) * MARGIN)
            after = known.ratio - LOWER_SHARE * (known.ratio - goal)
            if known.ratio - goal < WORTH_IT:
                continue
            evidence = f"{len(recent)} steps, {QUANTILE:.1%} of them up to {goal / MARGIN:.3f}"
            change = Change(kind="lowered", cell=cell, before=known.ratio, after=after, evidence=evidence)
            known.ratio, known.lowered_s = after, now_s
            yield change
