"""One law of prefill, or of fused batches, on all SM counts: what the device takes without the launching.

    a*sum(n^2) + b*sum(n*r) + c*sum(r) + d*sum(decode r) + e*requests + g
    g = (w^k + (f + s*tokens)^k)^(1/k)

A short batch waits for the weights (`w`), a long one for compute (`f + s*tokens`), and `k` says how far the
two overlap: the longer counts alone where it is large. On n of N SMs each of these costs is `p + q*N/n`: a
part that more SMs make faster and one that they do not, so that the bend moves with the SM count, which a
line with fixed bends cannot follow. What is left, a kernel that suits one partition better than another, is
a level of each SM count, drawn towards 1 where its samples are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads scipy.optimize when it is first used: a daemon starts without it

from pdmuxd.engine.core.latency import FusedCoefficients, PrefillCoefficients
from pdmuxd.engine.profiling.joint import LEVEL_CUT, LEVEL_SAMPLES, MIN_SIZES
from pdmuxd.engine.profiling.measurement import Sample
from pdmuxd.engine.profiling.model_selection import FOLDS
from pdmuxd.engine.profiling.regression import Floats

SAMPLES_PER_TERM = 1.5
_COSTS = 8
"""a, b, c, d, e, w, f, s."""
_DECODE = slice(3, 5)
"""d and e, which no prefill has."""
_SCATTER = 0.03
"""Relative errors beyond this count less and less: single outliers must not move the law."""
_MOST_SHARP = 30.0
"""Of `k`: beyond it the bend is a corner to any measurement."""
_KNOTS = (0.0, *(float(round(16 * 2 ** (number / 2))) for number in range(21)))
"""Tokens at which the bend is told to the predictor, from 16 to 16,384; straight in between."""


@dataclass(frozen=True, slots=True)
class DeviceLaw:
    """The fitted law."""

    shared: Floats
    """Per cost, the part that does not depend on the SM count, then the part that does; and `k`."""
    levels: Mapping[int, float]
    total_sms: int

    def seconds(self, samples: Sequence[Sample]) -> Floats:
        """What it says of each."""
        levels = np.array([self.levels.get(sample.sms, 1.0) for sample in samples])
        told: Floats = levels * _seconds(self.shared, *_rows(samples, self.total_sms))
        return told

    def prefill(self, sms: int) -> PrefillCoefficients:
        """Prefill on so many SMs, as engines predict with it."""
        costs = self._costs(sms)
        squared, cross, reused = costs[:3]
        weights, fixed, slope = costs[-3:]
        tokens = np.array(_KNOTS)
        line = fixed + slope * tokens
        bend = _longer(np.full(len(tokens), weights), line, self.shared[-1]) - line
        return PrefillCoefficients(
            per_new_squared_s=squared,
            per_new_times_reused_s=cross,
            per_new_s=slope,
            fixed_s=fixed,
            curve=tuple(zip(_KNOTS, (float(one) for one in bend), strict=True)),
            per_reused_s=reused,
        )

    def fused(self, sms: int) -> FusedCoefficients:
        """The same of fused batches."""
        reused, requests = self._costs(sms)[_DECODE]
        return FusedCoefficients(prefill=self.prefill(sms), per_reused_s=reused, per_request_s=requests)

    def _costs(self, sms: int) -> list[float]:
        level = self.levels.get(sms, 1.0)
        return [float(one) * level for one in _on_sms(self.shared, np.array([self.total_sms / sms]))[:, 0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A law, and how good it is."""

    law: DeviceLaw
    outliers: Mapping[int, int]
    held_out: Mapping[int, Floats]
    """By SM count, predicted over measured less 1 of each sample, by a fit without it and others."""


def fit_device_law(groups: Mapping[int, Sequence[Sample]], total_sms: int) -> LawFit | None:
    """Fit a law to the samples of one kind on each SM count; None where there are too few of them."""
    samples = [sample for group in groups.values() for sample in group]
    law = _fitted(samples, total_sms)
    if law is None:
        return None
    measured = _measured(samples)
    errors = np.full(len(samples), np.nan)
    turn = np.random.default_rng(0).permutation(len(samples)) % FOLDS
    for fold in range(FOLDS):
        left = [sample for sample, number in zip(samples, turn, strict=True) if number != fold]
        out = [sample for sample, number in zip(samples, turn, strict=True) if number == fold]
        without = _fitted(left, total_sms)
        if without is None:
            return None
        errors[turn == fold] = without.seconds(out) / measured[turn == fold] - 1.0
    sms_of = np.array([sample.sms for sample in samples])
    residuals = np.abs(law.seconds(samples) / measured - 1.0)
    return LawFit(
        law=law,
        outliers={sms: int((residuals[sms_of == sms] > LEVEL_CUT).sum()) for sms in groups},
        held_out={sms: errors[sms_of == sms] for sms in groups},
    )


def _fitted(samples: Sequence[Sample], total_sms: int) -> DeviceLaw | None:
    """Least squares of relative errors; every cost is positive, since its logarithm is what is fitted."""
    sms_of = np.array([sample.sms for sample in samples])
    parts = 2 if len(set(sms_of.tolist())) >= MIN_SIZES else 1
    sums, tokens, ratio = _rows(samples, total_sms)
    terms = parts * int(3 + (sums != 0.0).any(axis=0).sum()) + 1
    if len(samples) < SAMPLES_PER_TERM * terms:
        return None
    seconds = _measured(samples)

    def unpacked(parameters: Floats) -> Floats:
        costs = np.exp(parameters[:-1])
        both = np.concatenate([np.zeros(_COSTS), costs]) if parts == 1 else costs
        return np.append(both, min(_MOST_SHARP, 1.0 + float(np.exp(parameters[-1]))))

    def off(parameters: Floats) -> Floats:
        errors: Floats = np.log(_seconds(unpacked(parameters), sums, tokens, ratio) / seconds)
        return errors

    start = _start(tokens, ratio, seconds, parts)
    reach = (start - 25.0, start + 10.0)
    found = scipy.optimize.least_squares(off, start, bounds=reach, loss="soft_l1", f_scale=_SCATTER)
    parameters = np.asarray(found.x, dtype=np.float64)
    left = -off(parameters)
    levels = {}
    for sms in set(sms_of.tolist()):
        each = np.clip(left[sms_of == sms], -LEVEL_CUT, LEVEL_CUT)
        levels[sms] = float(np.exp(each.sum() / (len(each) + LEVEL_SAMPLES)))
    return DeviceLaw(shared=unpacked(parameters), levels=levels, total_sms=total_sms)


def _start(tokens: Floats, ratio: Floats, seconds: Floats, parts: int) -> Floats:
    """The shortest takes the weights' time, the longest ones compute, and the other costs are small beside
    these."""
    is_long = tokens >= np.median(tokens)
    slope = float(np.median(seconds[is_long] / (tokens * ratio)[is_long]))
    weights = float(seconds.min())
    small = 0.1 * slope / float(tokens.max())
    others = [small, small, 0.01 * slope, 0.001 * slope, 0.05 * slope]
    each = np.array([*others, weights, 0.05 * weights, slope])
    both = each if parts == 1 else np.concatenate([0.5 * each, 0.5 * each])
    return np.append(np.log(both), 1.0)


def _measured(samples: Sequence[Sample]) -> Floats:
    return np.array([sample.seconds for sample in samples])


def _rows(samples: Sequence[Sample], total_sms: int) -> tuple[Floats, Floats, Floats]:
    """Rows of the design: the sums of a sample's first five costs, its tokens, and N/n."""
    sums, tokens = [], []
    for sample in samples:
        prefill, decode = sample.point.prefill_shape, sample.point.decode_shape
        squared, cross = prefill.sum_new_squared, prefill.sum_new_times_reused
        sums.append((squared, cross, prefill.reused_tokens, decode.reused_tokens, decode.bs))
        tokens.append(prefill.new_tokens + decode.bs)
    ratio = np.array([total_sms / sample.sms for sample in samples])
    return np.array(sums, dtype=np.float64), np.array(tokens, dtype=np.float64), ratio


def _on_sms(shared: Floats, ratio: Floats) -> Floats:
    """Each cost (rows) at each N/n (columns)."""
    costs: Floats = shared[:_COSTS, None] + shared[_COSTS:-1, None] * ratio
    return costs


def _seconds(shared: Floats, sums: Floats, tokens: Floats, ratio: Floats) -> Floats:
    costs = _on_sms(shared, ratio)
    weights, fixed, slope = costs[-3:]
    computing = _longer(weights, fixed + slope * tokens, shared[-1])
    seconds: Floats = (sums * costs[:-3].T).sum(axis=1) + computing
    return seconds


def _longer(one: Floats, other: Floats, sharpness: float) -> Floats:
    """The longer of two, rounded where they are alike."""
    longer: Floats = np.exp(np.logaddexp(sharpness * np.log(one), sharpness * np.log(other)) / sharpness)
    return longer
