"""How far serving is from the predictors, by median, in small steps and within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.link.predictors import Correction

Predictor = Literal["prefill", "decode", "fused"]
ChangeKind = Literal["raised", "lowered", "corrected", "reset", "frozen", "thawed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that was learned: a guard cell, or the correction of a predictor on a number of SMs."""

    kind: ChangeKind
    cell: GuardCell | None = None
    predictor: Predictor | None = None
    sms: int = 0
    before: float
    after: float
    evidence: str
    """In words: how many steps, and what they took."""
    at_bound: bool = False


CORRECT_AFTER = 60
"""Steps on a number of SMs before its predictor is corrected."""
DRIFT = 0.03
"""A median within this of 1 counts as no drift: the fits are good to 5%."""
STEP = 0.05
"""The most that one correction moves."""
BOUNDS = (0.8, 1.25)
"""Corrections stay within these. If more were needed, the profile is of another device and must be measured
again."""
SETTLE_S = 2.0
"""For so long after a correction, steps may still have been planned with the predictor as it was before."""
FASTEST = 10.0
"""Among the steps beside a prefill, those up to this percentile are taken to be undisturbed."""
_KEPT = 1024


@dataclass(slots=True, kw_only=True)
class _Seen:
    """Measured over predicted, of one predictor on a number of SMs."""

    ratio: float = 1.0
    """The correction in force."""
    alone: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    colocated: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    ignore_until_s: float = 0.0
    at_bound: bool = False


class Corrections:
    """Corrections of all predictors of a profile in force."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Predictor, int], _Seen] = {}

    @property
    def at_bound(self) -> tuple[str, ...]:
        """The predictors whose corrections would have to go further than is allowed."""
        return tuple(
            f"{predictor} on {sms} SMs"
            for (predictor, sms), one in sorted(self._seen.items())
            if one.at_bound
        )

    def adopt(self, corrections: Sequence[Correction], now_s: float) -> None:
        """Adopt the corrections in force now; known ones that are not among them were reset."""
        stored: dict[tuple[Predictor, int], float] = {}
        for one in corrections:
            stored["prefill", one.sms] = one.prefill_ratio
            stored["decode", one.sms] = one.decode_ratio
            stored["fused", one.sms] = one.fused_ratio
        for key, known in self._seen.items():
            if key not in stored and known.ratio != 1.0:
                known.ratio, known.ignore_until_s, known.at_bound = 1.0, now_s + SETTLE_S, False
        for key, ratio in stored.items():
            self._of(*key).ratio = ratio

    def alone(self, predictor: Predictor, sms: int, ratio: float, now_s: float) -> None:
        """A step that nothing else slowed took so many times what was predicted."""
        known = self._of(predictor, sms)
        if now_s >= known.ignore_until_s:
            known.alone.append(ratio)

    def colocated(self, predictor: Predictor, sms: int, ratio: float, now_s: float) -> None:
        """Correct as `alone` does, for a step beside a prefill."""
        known = self._of(predictor, sms)
        if now_s >= known.ignore_until_s:
            known.colocated.append(ratio)

    def changes(self, now_s: float) -> Iterator[Change]:
        """The corrections that are needed now; they count as in force from here on."""
        for (predictor, sms), known in self._seen.items():
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
            known.colocated.clear()
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

    def _of(self, predictor: Predictor, sms: int) -> _Seen:
        return self._seen.setdefault((predictor, sms), _Seen())


def _drift_of(known: _Seen) -> tuple[float, str] | None:
    """How far a predictor is off, and by which evidence.

    Steps alone say so directly. A step beside a prefill is at least as slow as alone, so the fastest of
    them bound the drift from above: the predictor is too low only if even those are slower.
    """
    if len(known.alone) >= CORRECT_AFTER:
        drift = float(np.median(known.alone))
        return drift, f"median of {len(known.alone)} steps alone is {drift:.3f} of the prediction"
    if len(known.colocated) >= CORRECT_AFTER:
        fastest = float(np.percentile(known.colocated, FASTEST))
        typical = float(np.median(known.colocated))
        if fastest > 1.0 + DRIFT:
            return fastest, f"the fastest tenth of {len(known.colocated)} steps took {fastest:.3f} or more"
        if typical < 1.0 - DRIFT:
            return typical, f"half of {len(known.colocated)} steps beside prefill took {typical:.3f} or less"
        return 1.0, ""
    return None
