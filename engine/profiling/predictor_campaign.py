"""Measuring for one solo predictor: which point is next, whether a point is settled, whether the fit is good
enough."""

from __future__ import annotations

import random

import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.profiling import design_points, designs, solo
from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.measurement import Point, Sample, Target, typical
from pdmuxd.engine.profiling.regression import Floats, leverage_of

P90_TARGET, MAX_TARGET = 0.05, 0.09
"""Errors on held-out shapes at which measuring more is not worth its time."""
EARLY = 0.6
"""The errors at hand must meet this share of those targets, since the same samples also chose the form of the
fit."""
MAX_SOLO_SAMPLES = 60
SAMPLES_PER_TERM = 2.5
"""With fewer samples no fit is tried: cross-validating a fit with almost as many terms as samples says
nothing."""
RANDOM_EVERY = 3
"""Every third point of a predictor is drawn at random. What serving meets lies inside the range, while the
optimal design measures its edges."""
KNEE = (0.6, 1.7)
"""A point is near the knee if computing takes between these shares of the time that launching takes."""
KNEE_SAMPLES = 6
STALL_S = 0.1
LAUNCH_BOUND = 2.5
"""A point may have been stalled in all of its repeats if it takes at most so many times what the shortest one
takes, and no longer than a stall lasts."""
MAX_REPLICATES = 5
JUDGED_EVERY = 4
_PRIOR_WEIGHT = 1e-3


class PredictorCampaign:
    """One family on one number of SMs."""

    def __init__(
        self,
        family: designs.Family[object],
        sms: int,
        *,
        target: Target,
        pool: list[Point],
        design: Design,
        chance: random.Random,
        is_planned: bool = False,
    ) -> None:
        """`is_planned`: the pool is a plan, whose points are all measured, in its order.

        Raises: ProfileError if the pool is too small for any fit."""
        if len(pool) < solo.MIN_SAMPLES:
            raise ProfileError(
                f"{family.name} on {sms} SMs: the budget allows {len(pool)} points; "
                f"at least {solo.MIN_SAMPLES} are needed"
            )
        self.family = family
        self.sms = sms
        self.pool = pool
        self.samples: dict[Point, Sample] = {}
        """Settled ones."""
        self.p90 = self.worst = float("inf")
        self.is_done = False
        self.is_planned = is_planned
        self._random = chance
        self._asked = 0
        self._replicates: dict[Point, list[Sample]] = {}
        self._doubted: set[Point] = set()
        """Points that a fit could not explain: each is measured once more."""
        self._knee: list[Point] = []
        self._design = design
        prior_s = [design_points.cost_s(target, point) for point in pool]
        self._expected = list(zip(pool, prior_s, strict=True))
        self._cost_s = dict(self._expected)
        rows = family.rows(pool, self._design) / np.array(prior_s)[:, None]
        self._rows: Floats = rows / np.maximum(rows.max(axis=0), np.finfo(np.float64).tiny)
        self._information: Floats = _PRIOR_WEIGHT * np.eye(rows.shape[1])

    @property
    def least(self) -> int:
        """Samples without which no fit is tried."""
        own = len(self._design.own_bs)
        shared = len(self._information) - own
        return max(solo.MIN_SAMPLES, int(SAMPLES_PER_TERM * shared) + self.family.own_samples * own)

    @property
    def is_open(self) -> bool:
        """Whether another point would help."""
        return bool(self.pool) and not self.is_done

    @property
    def is_starved(self) -> bool:
        """Whether a few more samples matter more to it than some of the pairs do to the guard: where experts
        bend the line, until the line can be judged. A table has no use for them, since it needs two of each
        graph."""
        return self._design.experts is not None and self._asked < self.least

    @property
    def need(self) -> tuple[float, float]:
        """Plans come first, then predictors without a fit, the one with the fewest samples before the others;
        then those furthest from their target."""
        if self.is_planned:
            return (float("inf"), len(self.pool) / max(1, len(self.pool) + self._asked))
        if self._asked < self.least:
            return (float("inf"), -self._asked / self.least)
        return (max(self.p90 / P90_TARGET, self.worst / MAX_TARGET), 0.0)

    @property
    def left_s(self) -> float:
        """Seconds of measuring that are expected to be still missing, without the overhead of each point."""
        costs = [self._cost_s[point] for point in self.pool[::7]]
        return self.missing * 3.0 * float(np.mean(costs)) if costs else 0.0

    @property
    def missing(self) -> int:
        """Points, at least."""
        return len(self.pool) if self.is_planned else max(JUDGED_EVERY, self.least - self._asked)

    def next(self, overhead_s: float) -> Point:
        """The next of a plan; else a point near the knee, a random one, or the one that the samples say least
        about; of two alike, the cheaper one."""
        if self.is_planned:
            return self.take(self.pool[0])
        turn = self._asked % RANDOM_EVERY
        knee = [point for point in self._knee if point in self._cost_s and point in self.pool]
        if knee and turn == 0:
            return self.take(self._random.choice(knee))
        if turn == RANDOM_EVERY - 1:
            return self.take(self._random.choice(self.pool))
        variance = leverage_of(np.linalg.inv(self._information).astype(np.float64), self._rows)
        cost_s = np.array([self._cost_s[point] for point in self.pool])
        return self.take(self.pool[int(np.argmax(variance / (cost_s + overhead_s) ** 0.5))])

    def take(self, point: Point) -> Point:
        """Out of the pool, as good as measured."""
        if point in self.pool:
            index = self.pool.index(point)
            row = self._rows[index]
            self._information += np.outer(row, row)
            self._rows = np.delete(self._rows, index, axis=0)
            del self.pool[index]
            self._asked += 1
        return point

    def replicates_of(self, point: Point) -> int:
        """How often a point was measured."""
        return len(self._replicates.get(point, ()))

    def add(self, sample: Sample, shortest_s: float) -> bool:
        """Keep one measurement; whether the point is settled, or must be measured again later."""
        point = sample.point
        replicates = self._replicates.setdefault(point, [])
        replicates.append(sample)
        together = typical(replicates)
        if self._may_be_stalled(together, shortest_s) and len(replicates) < MAX_REPLICATES:
            return False
        self.samples[point] = together
        return True

    def judge(self) -> list[Point]:
        """Fit the settled samples and judge the fit; returns the points that it cannot explain."""
        samples = list(self.samples.values())
        if self.is_planned or len(samples) < self.least:
            return []
        design = self._design
        found = solo.fit_solo(
            self.family, samples, design.captured_bs, self._expected, experts=design.experts
        )
        self.p90, self.worst = found.errors.p90, found.errors.max
        odd = [
            sample.point
            for sample, is_odd in zip(samples, found.is_odd, strict=True)
            if is_odd and sample.point not in self._doubted
        ]
        self._doubted.update(odd)
        near = sum(_is_near(found, self.family, [sample.point for sample in samples]))
        around = _is_near(found, self.family, self.pool) if self.pool else []
        self._knee = [point for point, is_near in zip(self.pool, around, strict=True) if is_near]
        if near >= KNEE_SAMPLES:
            self._knee = []
        met = self.p90 <= EARLY * P90_TARGET and self.worst <= EARLY * MAX_TARGET
        self.is_done = (met and not odd and not self._knee) or len(samples) >= MAX_SOLO_SAMPLES
        return odd

    def _may_be_stalled(self, together: Sample, shortest_s: float) -> bool:
        """A decode step and a captured batch are one launch each; everything else is launched layer by layer,
        and a stall can slow it, unless the device's time was told apart."""
        if together.launch_s:
            return together.is_host_bound
        captured = max(self._design.captured_bs, default=0)
        return (
            self.family is not designs.DECODE
            and self.family.size_of(together.point) > captured
            and not together.confirmed
            and together.seconds <= min(STALL_S, LAUNCH_BOUND * shortest_s)
        )


def _is_near(found: solo.SoloFit[object], family: designs.Family[object], points: list[Point]) -> list[bool]:
    """Which points take about as long to compute as to launch."""
    ratios = (
        family.rows(points, found.design) @ found.terms / max(found.floor_s, float(np.finfo(np.float64).tiny))
    )
    return [bool(KNEE[0] <= ratio <= KNEE[1]) for ratio in ratios]
