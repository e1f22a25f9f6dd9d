"""A measuring campaign: which point next, when to stop, how long it will take. No clock and no I/O.

Solo predictors first: the one that is furthest from its error target gets the point that its samples say
least about (the highest variance of its prediction, as D-optimal designs choose). Then pairs for the
guard, spread over each split. Time is what the caller says has passed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.profiling import candidates, designs, solo
from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.points import Point, Sample
from pdmuxd.engine.profiling.regression import Floats, leverage_of
from pdmuxd.engine.profiling.target import Target

P90_TARGET, MAX_TARGET = 0.05, 0.09
"""Errors of solo predictors on held-out shapes at which measuring more is not worth its time."""
EARLY = 0.6
"""Of those targets, what the samples at hand must meet: they choose the form that suits them."""
MAX_SOLO_SAMPLES = 60
SAMPLES_PER_TERM = 2.5
"""Below that no fit is tried: cross-validation of a nearly saturated fit says nothing."""
RANDOM_EVERY = 3
"""Of the points of a predictor, each third is any of the pool: what serving meets lies inside the range,
while the best design measures its edges."""
PAIRS = 320
GUARD_SHARE = 0.45
"""Of the budget, what is kept for the guard."""
POINT_SHARE = 0.006
"""Of the budget, what a single point may take."""
_PRIOR_WEIGHT = 1e-3
_TRIED = 60
"""Pairs of the pool that are looked at for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next thing to measure."""

    point: Point
    repeats: int
    expected_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the campaign is."""

    measured: int
    left_s: float
    """An estimate."""
    what: str


@dataclass(slots=True, kw_only=True)
class _Predictor:
    """One solo predictor in the making."""

    family: solo.Family[object]
    sms: int
    pool: list[Point]
    expected: list[tuple[Point, float]]
    rows: Floats
    """Of the pool, relative to the time that is believed."""
    design: Design
    samples: list[Sample] = field(default_factory=list)
    information: Floats
    p90: float = float("inf")
    worst: float = float("inf")
    is_done: bool = False
    doubted: list[Point] = field(default_factory=list)
    """Samples that the fit cannot explain, to be measured once more."""
    measured_again: set[Point] = field(default_factory=set)

    @property
    def least(self) -> int:
        """Samples without which no fit is tried."""
        return max(solo.MIN_SAMPLES, int(SAMPLES_PER_TERM * len(self.information)))

    def take(self, point: Point) -> Point:
        """Out of the pool, as good as measured."""
        if point in self.pool:
            index = self.pool.index(point)
            row = self.rows[index]
            self.information += np.outer(row, row)
            self.rows = np.delete(self.rows, index, axis=0)
            del self.pool[index]
        return point


class Campaign:
    """Give it every sample; ask it for the next step until there is none."""

    def __init__(self, target: Target, *, budget_s: float, seed: int = 0) -> None:
        self.samples: list[Sample] = []
        self._target = target
        self._budget_s = budget_s
        self._longest_s = budget_s * POINT_SHARE
        self._random = random.Random(seed)  # noqa: S311 - which points, not a secret
        self._overhead_s = 0.01
        """What a point takes beyond its repeats, as seen so far."""
        self._predictors = self._make_predictors()
        self._pairs = {
            split: candidates.beside_points(target, split, self._longest_s) for split in target.splits
        }
        self._taken: dict[tuple[int, int], list[Floats]] = {split: [] for split in target.splits}
        self._asked: Step | None = None
        self._current: _Predictor | None = None

    def next(self, elapsed_s: float) -> Step | None:
        """The next step; None when the targets are met, the pools are empty or the budget is spent."""
        self._current = None
        if elapsed_s >= self._budget_s:
            return None
        open_ones = [one for one in self._predictors if not one.is_done and (one.pool or one.doubted)]
        if not open_ones or elapsed_s > self._budget_s * (1.0 - GUARD_SHARE):
            pair = self._next_pair()
            if pair is not None:
                return self._step(pair)
        if not open_ones:
            return None
        self._current = max(open_ones, key=_need)
        return self._step(self._next_solo(self._current))

    def add(self, sample: Sample, took_s: float) -> None:
        """A step was measured and took so long, everything included."""
        self.samples.append(sample)
        if self._asked is not None:
            beyond_s = max(0.0, took_s - self._asked.expected_s)
            self._overhead_s += 0.1 * (min(beyond_s, 1.0) - self._overhead_s)
        predictor = self._predictor_of(sample)
        if predictor is not None:
            self._learn(predictor, sample)

    def resume(self, samples: Sequence[Sample]) -> None:
        """Go on from what an earlier campaign on the same target has measured."""
        self.samples.extend(samples)
        for sample in samples:
            predictor = self._predictor_of(sample)
            if predictor is not None:
                predictor.take(sample.point)
                predictor.samples.append(sample)
                continue
            split = (sample.point.prefill_sms, sample.point.decode_sms)
            if split in self._pairs:
                self._taken[split].append(_place(sample.point))
                if sample.point in self._pairs[split]:
                    self._pairs[split].remove(sample.point)
        for predictor in self._predictors:
            if len(predictor.samples) >= predictor.least:
                self._judge(predictor)

    def progress(self, elapsed_s: float) -> Progress:
        """For people."""
        open_ones = [one for one in self._predictors if not one.is_done and (one.pool or one.doubted)]
        solo_s = sum(self._remaining_s(one) for one in open_ones)
        pairs_left = max(0, PAIRS - sum(len(taken) for taken in self._taken.values()))
        guard_s = pairs_left * self._pair_cost_s()
        what = "contention guard"
        if self._current is not None:
            what = f"{self._current.family.name} on {self._current.sms} SMs"
        left_s = min(max(0.0, self._budget_s - elapsed_s), solo_s + guard_s)
        return Progress(measured=len(self.samples), left_s=left_s, what=what)

    # --- solo predictors

    def _make_predictors(self) -> list[_Predictor]:
        target = self._target
        made = [
            self._predictor(solo.DECODE, sms, candidates.decode_points, designs.DECODE_KNOTS)
            for sms in target.decode_sizes
        ]
        made += [
            self._predictor(solo.PREFILL, sms, candidates.prefill_points, designs.PREFILL_KNOTS)
            for sms in target.prefill_sizes
        ]
        total = target.hello.total_sms
        made.append(self._predictor(solo.FUSED, total, candidates.fused_points, designs.PREFILL_KNOTS))
        return made

    def _predictor(
        self,
        family: solo.Family[object],
        sms: int,
        points: Callable[[Target, int, float], list[Point]],
        knots: tuple[int, ...],
    ) -> _Predictor:
        pool = points(self._target, sms, self._longest_s)
        if len(pool) < solo.MIN_SAMPLES:
            raise ProfileError(
                f"{family.name} on {sms} SMs: the budget of {self._budget_s:g} s allows {len(pool)} points; "
                f"at least {solo.MIN_SAMPLES} are needed"
            )
        design = Design(knots=knots, captured_bs=self._target.hello.captured_decode_bs)
        rows = family.rows(pool, design)
        believed_s = np.array([candidates.cost_s(self._target, point) for point in pool])
        relative = rows / believed_s[:, None]
        relative = relative / np.maximum(relative.max(axis=0), np.finfo(np.float64).tiny)
        return _Predictor(
            family=family,
            sms=sms,
            pool=pool,
            expected=list(zip(pool, (float(one) for one in believed_s), strict=True)),
            rows=relative,
            design=design,
            information=_PRIOR_WEIGHT * np.eye(rows.shape[1]),
        )

    def _next_solo(self, predictor: _Predictor) -> Point:
        """A doubted point, or the one that the samples say least about; of two alike, the cheaper."""
        if predictor.doubted:
            return predictor.doubted.pop()
        variance = leverage_of(np.linalg.inv(predictor.information).astype(np.float64), predictor.rows)
        cost_s = np.array([candidates.cost_s(self._target, point) for point in predictor.pool])
        chosen = int(np.argmax(variance / (cost_s + self._overhead_s) ** 0.25))
        if len(predictor.samples) % RANDOM_EVERY == RANDOM_EVERY - 1:
            chosen = self._random.randrange(len(predictor.pool))
        return predictor.take(predictor.pool[chosen])

    def _predictor_of(self, sample: Sample) -> _Predictor | None:
        """None for a pair."""
        wanted = (sample.point.mode, sample.sms)
        return next((one for one in self._predictors if (one.family.name, one.sms) == wanted), None)

    def _learn(self, predictor: _Predictor, sample: Sample) -> None:
        predictor.samples.append(sample)
        count = len(predictor.samples)
        if count >= predictor.least and (count - predictor.least) % 4 == 0:
            self._judge(predictor)

    def _judge(self, predictor: _Predictor) -> None:
        """Fit it, and see whether it is good enough and what it cannot explain."""
        found = solo.fit_solo(
            predictor.family, predictor.samples, predictor.design.captured_bs, predictor.expected
        )
        predictor.p90, predictor.worst = found.errors.p90, found.errors.max
        for sample, is_inlier in zip(predictor.samples, found.is_inlier, strict=True):
            if not is_inlier and sample.point not in predictor.measured_again:
                predictor.measured_again.add(sample.point)
                predictor.doubted.append(sample.point)
        met = predictor.p90 <= EARLY * P90_TARGET and predictor.worst <= EARLY * MAX_TARGET
        met = met and not predictor.doubted
        predictor.is_done = met or len(predictor.samples) >= MAX_SOLO_SAMPLES

    # --- pairs

    def _next_pair(self) -> Point | None:
        """From the split with the fewest pairs, the one furthest from those it has."""
        if sum(len(taken) for taken in self._taken.values()) >= PAIRS:
            return None
        splits = [split for split, pool in self._pairs.items() if pool]
        if not splits:
            return None
        split = min(splits, key=lambda one: len(self._taken[one]))
        pool, taken = self._pairs[split], self._taken[split]
        tried = self._random.sample(range(len(pool)), min(_TRIED, len(pool)))

        def distance(index: int) -> float:
            place = _place(pool[index])
            near = min((float(np.abs(place - other).sum()) for other in taken), default=1.0)
            return float(near / (candidates.cost_s(self._target, pool[index]) + self._overhead_s) ** 0.5)

        point = pool.pop(max(tried, key=distance))
        taken.append(_place(point))
        return point

    def _pair_cost_s(self) -> float:
        costs = [
            candidates.cost_s(self._target, point) for pool in self._pairs.values() for point in pool[::29]
        ]
        return self._overhead_s + (float(np.mean(costs)) if costs else 0.0)

    def _remaining_s(self, predictor: _Predictor) -> float:
        costs = [candidates.cost_s(self._target, point) for point in predictor.pool[::7]]
        missing = max(4, predictor.least - len(predictor.samples))
        return missing * (3.0 * float(np.mean(costs)) + self._overhead_s)

    def _step(self, point: Point) -> Step:
        once_s = candidates.cost_s(self._target, point)
        repeats = 1
        if point.mode != "beside":
            repeats = 5 if once_s < 0.05 else 3 if once_s < 0.3 else 1
        self._asked = Step(point=point, repeats=repeats, expected_s=once_s * repeats)
        return self._asked


def _need(predictor: _Predictor) -> tuple[float, float]:
    """Those without a fit first, the emptiest of them first; then by how far the target is off."""
    if len(predictor.samples) < predictor.least:
        return (float("inf"), -len(predictor.samples) / predictor.least)
    return (max(predictor.p90 / P90_TARGET, predictor.worst / MAX_TARGET), 0.0)


def _place(point: Point) -> Floats:
    """Where a pair lies on the guard's grid, in powers of two."""
    prefill, decode = point.prefill_shape, point.decode_shape
    sizes = (prefill.new_tokens, prefill.reused_tokens + 512, decode.bs, decode.reused_tokens)
    return np.log2(np.array(sizes, dtype=np.float64))
