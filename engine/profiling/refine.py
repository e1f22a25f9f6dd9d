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

from pdmuxd.engine.core.guard import MAX_RATIO, GuardCell, guard_cell
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.core.types import DecodeShape, Mode, PrefillShape
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.profiling.changes import Change, Predictor

LOWER_AFTER = 300
"""Steps in a cell, all within its bound, before the bound may come down."""
LOWER_EVERY_S = 60.0
LOWER_SHARE = 0.25
"""Of the way to the quantile, per lowering."""
QUANTILE, MARGIN = 0.995, 1.02
"""Bounds come down towards this quantile of what was seen, and a little above it."""
WORTH_IT = 0.01
"""Changes smaller than this are not made."""

CORRECT_AFTER = 60
"""Steps on a number of SMs before its predictor is corrected."""
DRIFT = 0.03
"""A median within this of 1 is no drift: fits are good to 5%."""
STEP = 0.05
"""The most that one correction moves."""
BOUNDS = (0.8, 1.25)
"""What corrections stay within: beyond, the profile is of another device, and must be measured again."""
SETTLE_S = 2.0
"""For so long after a correction, records may still be of the predictor before it."""
FASTEST = 10.0
"""Percentile of the steps beside a prefill that are taken for undisturbed."""
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
    """What the bound was when it was last asked for changes, if it was raised since."""
    evidence: str = ""


@dataclass(slots=True, kw_only=True)
class _Correction:
    ratio: float
    alone: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    beside: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    ignore_until_s: float = 0.0
    at_bound: bool = False


class Refiner:
    """What is known of one profile in force, and what serving adds to it."""

    def __init__(self, predictors: Predictors, model: SoloRunModel, *, layers: int, now_s: float) -> None:
        self.predictors = predictors
        self._layers = layers
        self._model = model
        self._cells: dict[GuardCell, _Cell] = {}
        self._bounds = dict(predictors.guard_cells)
        self._corrections: dict[tuple[Predictor, int], _Correction] = {}
        self._adopt_corrections(now_s)

    @property
    def at_bound(self) -> tuple[str, ...]:
        """The predictors whose corrections would have to go further than is allowed."""
        return tuple(
            f"{predictor} on {sms} SMs"
            for (predictor, sms), one in sorted(self._corrections.items())
            if one.at_bound
        )

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
        self._adopt_corrections(now_s)

    def observe(self, record: IterationRecord, now_s: float) -> None:
        """Learn from one step. A frozen profile learns nothing."""
        if self.predictors.guard_frozen or record.mode != Mode.SPLIT:
            return
        if record.measured_decode_s is not None and record.decode_bs:
            self._observe_decode(record, record.measured_decode_s, now_s)
        if record.measured_prefill_s is not None and record.prefill_layers and self._layers:
            shape = _prefill_of(record)
            share = record.prefill_layers / self._layers
            predicted_s = self._model.prefill_s(shape, record.prefill_sms) * share
            known = self._correction("prefill", record.prefill_sms)
            if predicted_s > 0.0 and now_s >= known.ignore_until_s:
                known.alone.append(record.measured_prefill_s / predicted_s)

    def changes(self, now_s: float) -> tuple[Change, ...]:
        """What has changed since the last time, in force here from now on."""
        if self.predictors.guard_frozen:
            return ()
        return (*self._raised(), *self._lowered(now_s), *self._corrected(now_s))

    # --- observing

    def _observe_decode(self, record: IterationRecord, measured_s: float, now_s: float) -> None:
        shape = DecodeShape(bs=record.decode_bs, reused_tokens=record.decode_reused_tokens)
        predicted_s = self._model.decode_s(shape, record.decode_sms)
        if predicted_s <= 0.0:
            return
        ratio = measured_s / predicted_s
        known = self._correction("decode", record.decode_sms)
        settled = now_s >= known.ignore_until_s
        if not record.prefill_new_tokens:
            if settled:
                known.alone.append(ratio)
            return
        if settled:
            known.beside.append(ratio)
        self._observe_cell(record, shape, ratio, measured_s, predicted_s)

    def _observe_cell(
        self, record: IterationRecord, shape: DecodeShape, ratio: float, measured_s: float, predicted_s: float
    ) -> None:
        cell = guard_cell(record.decode_sms, _prefill_of(record), shape)
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

    def _corrected(self, now_s: float) -> Iterator[Change]:
        for (predictor, sms), known in self._corrections.items():
            found = _drift_of(known)
            if found is None:
                continue
            drift, evidence = found
            if abs(drift - 1.0) <= DRIFT:
                known.at_bound = known.at_bound and not BOUNDS[0] < known.ratio < BOUNDS[1]
                continue
            wanted = known.ratio * drift
            step = min(max(drift, 1.0 - STEP), 1.0 + STEP)
            after = min(max(known.ratio * step, BOUNDS[0]), BOUNDS[1])
            is_cut = after in BOUNDS and not BOUNDS[0] <= wanted <= BOUNDS[1]
            newly_at_bound = is_cut and not known.at_bound
            known.at_bound = is_cut
            known.alone.clear()
            known.beside.clear()
            if after == known.ratio and not newly_at_bound:
                continue
            change = Change(
                kind="corrected",
                predictor=predictor,
                sms=sms,
                before=known.ratio,
                after=after,
                evidence=evidence,
                at_bound=known.at_bound,
            )
            known.ratio, known.ignore_until_s = after, now_s + SETTLE_S
            yield change

    def _correction(self, predictor: Predictor, sms: int) -> _Correction:
        return self._corrections.setdefault((predictor, sms), _Correction(ratio=1.0))

    def _adopt_corrections(self, now_s: float) -> None:
        stored = {one.sms: one for one in self.predictors.corrections}
        for (_, sms), known in self._corrections.items():
            if sms not in stored and known.ratio != 1.0:
                known.ratio, known.ignore_until_s, known.at_bound = 1.0, now_s + SETTLE_S, False
        for sms, one in stored.items():
            self._correction("prefill", sms).ratio = one.prefill_ratio
            self._correction("decode", sms).ratio = one.decode_ratio


def _drift_of(known: _Correction) -> tuple[float, str] | None:
    """How far a predictor is off, and by which evidence.

    Steps alone say so directly. A step beside a prefill is at least as slow as alone, so the fastest of
    them bound the drift from above: the predictor is too low only if even those are slower.
    """
    if len(known.alone) >= CORRECT_AFTER:
        drift = float(np.median(known.alone))
        return drift, f"median of {len(known.alone)} steps alone is {drift:.3f} of the prediction"
    if len(known.beside) >= CORRECT_AFTER:
        fastest = float(np.percentile(known.beside, FASTEST))
        typical = float(np.median(known.beside))
        if fastest > 1.0 + DRIFT:
            return fastest, f"the fastest tenth of {len(known.beside)} steps took {fastest:.3f} or more"
        if typical < 1.0 - DRIFT:
            return typical, f"half of {len(known.beside)} steps beside prefill took {typical:.3f} or less"
        return 1.0, ""
    return None


def _prefill_of(record: IterationRecord) -> PrefillShape:
    return PrefillShape(
        bs=record.prefill_bs,
        new_tokens=record.prefill_new_tokens,
        reused_tokens=record.prefill_reused_tokens,
        sum_new_squared=record.prefill_sum_new_squared,
        sum_new_times_reused=record.prefill_sum_new_times_reused,
    )
