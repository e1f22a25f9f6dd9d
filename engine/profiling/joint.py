"""One fit of prefill for all SM counts at once, where samples are too few for a fit on each.

On n of N SMs every cost of eq. 1 is taken as `a + b * N / n`: a part that more SMs make faster, and one that
they do not, such as reading weights. What is left, a kernel that suits one partition better than another, is
a level of each SM count, drawn towards 1 where its samples are few. With 14 to 22 samples on each of seven to
nine SM counts this has half as many coefficients as samples; a fit on each has as many as half of them.
Source: cross-validation on the profiles of docs/measurements/h200 (docs/measurements/h200-kernels.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pdmuxd.engine.core.latency import PrefillCoefficients
from pdmuxd.engine.profiling.designs import Design, prefill_of, prefill_rows
from pdmuxd.engine.profiling.measurement import Sample
from pdmuxd.engine.profiling.model_selection import FOLDS
from pdmuxd.engine.profiling.regression import Floats, fit, fit_above_floor

MIN_SIZES = 3
"""SM counts without which the two parts of a cost cannot be told apart."""
SAMPLES_PER_TERM = 2.0
DESIGN = Design(knots=(512, 2048))
LEVEL_SAMPLES = 4.0
"""The weight of a level of 1, in samples."""
LEVEL_CUT = 0.15
"""A sample moves its level by at most so much: outliers must not."""

Groups = Mapping[int, Sequence[Sample]]
"""Prefills by SM count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointFit:
    """Fits all SM counts together."""

    coefficients: Mapping[int, PrefillCoefficients]
    floor_s: float
    outliers: Mapping[int, int]
    held_out: Mapping[int, Floats]
    """Predicted over measured less 1 of each sample, by a fit without it and others."""


@dataclass(frozen=True, slots=True)
class _Law:
    shared: Floats
    """The parts that do not depend on the SM count, then those that do."""
    levels: Mapping[int, float]
    floor_s: float

    def coefficients(self, sms: int) -> Floats:
        """Coefficients by column of the design, on so many SMs."""
        fixed, scaled = np.split(self.shared, 2)
        both: Floats = (fixed + scaled / sms) * self.levels.get(sms, 1.0)
        return both

    def predict(self, samples: Sequence[Sample]) -> Floats:
        rows = prefill_rows([sample.point for sample in samples], DESIGN)
        each = np.array([self.coefficients(sample.sms) for sample in samples])
        seconds: Floats = np.maximum(self.floor_s, (rows * each).sum(axis=1))
        return seconds


def fit_joint(groups: Groups) -> JointFit | None:
    """None where there are too few SM counts or samples."""
    samples = [sample for group in groups.values() for sample in group]
    if len(groups) < MIN_SIZES:
        return None
    law = _law(samples)
    if law is None:
        return None
    errors = np.full(len(samples), np.nan)
    turn = np.random.default_rng(0).permutation(len(samples)) % FOLDS
    for fold in range(FOLDS):
        left = [sample for sample, number in zip(samples, turn, strict=True) if number != fold]
        out = [sample for sample, number in zip(samples, turn, strict=True) if number == fold]
        without = _law(left)
        if without is None:
            return None
        errors[turn == fold] = without.predict(out) / _seconds(out) - 1.0
    sms_of = np.array([sample.sms for sample in samples])
    residuals = np.abs(law.predict(samples) / _seconds(samples) - 1.0)
    return JointFit(
        coefficients={sms: prefill_of(law.coefficients(sms), law.floor_s, DESIGN) for sms in groups},
        floor_s=law.floor_s,
        outliers={sms: int((residuals[sms_of == sms] > LEVEL_CUT).sum()) for sms in groups},
        held_out={sms: errors[sms_of == sms] for sms in groups},
    )


def is_better(joint: JointFit, held_out: Mapping[int, Floats]) -> bool:
    """Whether it has the smaller error at p90 on samples that it did not see, all SM counts together; never
    where nothing was fitted to be compared with."""
    ours, theirs = (_p90(tuple(each.values())) for each in (joint.held_out, held_out))
    return ours is not None and theirs is not None and ours < theirs


def _p90(errors: Sequence[Floats]) -> float | None:
    known = np.concatenate([one[~np.isnan(one)] for one in errors]) if errors else np.empty(0)
    return float(np.percentile(np.abs(known), 90.0)) if len(known) else None


def _seconds(samples: Sequence[Sample]) -> Floats:
    return np.array([sample.seconds for sample in samples])


def _law(samples: Sequence[Sample]) -> _Law | None:
    rows = prefill_rows([sample.point for sample in samples], DESIGN)
    sms_of = np.array([sample.sms for sample in samples])
    design = np.hstack([rows, rows / sms_of[:, None]])
    if len(samples) < SAMPLES_PER_TERM * design.shape[1]:
        return None
    seconds, confirmed = _seconds(samples), np.array([sample.confirmed for sample in samples])
    found = fit_above_floor(design, seconds, None, confirmed) or fit(design, seconds, None, confirmed)
    expected: Floats = design @ found.coefficients
    levels = {}
    for sms in set(sms_of.tolist()):
        is_judged = (sms_of == sms) & (expected > found.floor_s) & (seconds > found.floor_s)
        off = np.clip(np.log(seconds[is_judged] / expected[is_judged]), -LEVEL_CUT, LEVEL_CUT)
        levels[sms] = float(np.exp(off.sum() / (len(off) + LEVEL_SAMPLES)))
    return _Law(shared=found.coefficients, levels=levels, floor_s=found.floor_s)
