"""A measuring campaign: which point next, when to stop, how long it will take. No clock and no I/O.

Solo predictors first: the one that is furthest from its error target gets the point that its samples say
least about (the highest variance of its prediction, as D-optimal designs choose). A point that launching may
have slowed is measured again later, until two replicates of time agree, and again if more work took less.
Then pairs for the guard, spread over each split. Time is what the caller says has passed.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.engine.profiling import design_points, designs, serving_design
from pdmuxd.engine.profiling.design_points import PairChoice
from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.measurement import Point, Sample, Target, is_dominated
from pdmuxd.engine.profiling.predictor_campaign import (
    JUDGED_EVERY,
    MAX_REPLICATES,
    STALL_S,
    PredictorCampaign,
)

LEAST_PLANNED = 12
"""Points of a plan; a fit needs 8."""
GUARD_SHARE = 0.38
"""Of the budget, what is kept for the guard; every other point of it goes to a starved predictor."""
POINT_SHARE = 0.006
"""Of the budget, what a single point may take."""
APART_S = 2.0
"""Between two replicates of one point: far more than a stall lasts."""
DOMINATED_APART_S = 10.0
"""The same for a point that took longer than one with more work: a host may be slow for seconds, and two
measurements within that time would confirm each other."""
MOST_REPLICATES = MAX_REPLICATES + 3
"""Of a point that keeps being outdone."""


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
    """Points."""
    left_s: float
    """An estimate."""
    what: str


class Campaign:
    """Give it every sample; ask it for the next step until there is none."""

    def __init__(self, target: Target, *, budget_s: float, seed: int = 0) -> None:
        """Raises: ProfileError if the budget is too small for any fit."""
        self.samples: list[Sample] = []
        """As measured: a point has one per stretch."""
        self._target = target
        self._budget_s = budget_s
        self._elapsed_s = 0.0
        self._max_point_s = budget_s * POINT_SHARE
        self._random = random.Random(seed)  # noqa: S311 - which points, not a secret
        self._overhead_s = 0.01
        """What a point takes beyond its repeats, as seen so far."""
        self._shortest_s = float("inf")
        """Of what is launched layer by layer."""
        self._predictors = self._make_predictors()
        self._pairs = PairChoice(target, max_point_s=self._max_point_s, chance=self._random)
        self._again: list[tuple[float, Point]] = []
        """Points to be measured once more, with the earliest time for it; the earliest first."""
        self._asked: Step | None = None
        self._is_pairs_turn = False
        """Whether the last point that both wanted, the guard and a starved predictor, was a pair."""

    def next(self, elapsed_s: float) -> Step | None:
        """The next step; None when the targets are met, the pools are empty or the budget is spent."""
        self._elapsed_s, self._asked = elapsed_s, None
        if elapsed_s >= self._budget_s:
            return None
        if self._again and self._again[0][0] <= elapsed_s:
            return self._step(self._again.pop(0)[1])
        open_ones = self._open_ones()
        is_for_guard = elapsed_s > self._budget_s * (1.0 - GUARD_SHARE)
        if is_for_guard and any(one.is_starved for one in open_ones):
            is_for_guard = self._is_pairs_turn = not self._is_pairs_turn
        if not open_ones or is_for_guard:
            pair = self._pairs.next(self._overhead_s)
            if pair is not None:
                return self._step(pair)
        if open_ones:
            most_needed = max(open_ones, key=lambda one: one.need)
            return self._step(most_needed.next(self._overhead_s))
        if self._again:
            return self._step(self._again.pop(0)[1])
        return None

    def add(self, sample: Sample, took_s: float) -> None:
        """A step was measured and took so long, everything included."""
        self.samples.append(sample)
        if self._asked is not None:
            beyond_s = max(0.0, took_s - self._asked.expected_s)
            self._overhead_s += 0.1 * (min(beyond_s, 1.0) - self._overhead_s)
        predictor = self._predictor_of(sample)
        if predictor is None:
            return
        if not self._learn(predictor, sample):
            self._later(sample.point, APART_S)
            return
        for point in self._dominated(predictor, sample.point):
            self._later(point, DOMINATED_APART_S)
        if len(predictor.samples) % JUDGED_EVERY == 0:
            for point in predictor.judge():
                self._later(point, APART_S)

    def resume(self, samples: Sequence[Sample]) -> None:
        """Go on from what an earlier campaign on the same target has measured."""
        self.samples.extend(samples)
        unsettled: dict[Point, bool] = {}
        for sample in samples:
            predictor = self._predictor_of(sample)
            if predictor is None:
                self._pairs.take(sample.point)
            else:
                predictor.take(sample.point)
                unsettled[sample.point] = not self._learn(predictor, sample)
        for predictor in self._predictors:
            unsettled.update(dict.fromkeys(predictor.judge(), True))
        for point, is_unsettled in unsettled.items():
            if is_unsettled:
                self._later(point, APART_S)

    def progress(self, elapsed_s: float) -> Progress:
        solo_s = sum(one.left_s + one.missing * self._overhead_s for one in self._open_ones())
        guard_s = self._pairs.missing * (self._pairs.cost_s() + self._overhead_s)
        what = "contention guard"
        if self._asked is not None and self._asked.point.mode != "colocated":
            point = self._asked.point
            what = f"{point.mode} on {point.decode_sms or point.prefill_sms} SMs"
        left_s = min(max(0.0, self._budget_s - elapsed_s), solo_s + guard_s)
        points = len({sample.point for sample in self.samples})
        return Progress(measured=points, left_s=left_s, what=what)

    def _make_predictors(self) -> list[PredictorCampaign]:
        target, total_sms = self._target, self._target.hello.total_sms
        kinds = [
            (designs.DECODE, target.decode_sizes, design_points.decode_points, designs.DECODE_KNOTS),
            (designs.PREFILL, target.prefill_sizes, self._prefill_plan, designs.PREFILL_KNOTS),
            (designs.FUSED, (total_sms,), self._fused_plan, designs.PREFILL_KNOTS),
        ]
        return [
            PredictorCampaign(
                family,
                sms,
                target=target,
                pool=points(target, sms, self._max_point_s),
                design=_planned(family, target, knots),
                chance=self._random,
                is_planned=family is not designs.DECODE,
            )
            for family, sizes, points, knots in kinds
            for sms in sizes
        ]

    def _prefill_plan(self, target: Target, sms: int, max_point_s: float) -> list[Point]:
        plan = serving_design.prefill_design(target, sms)
        return self._enough(plan, design_points.prefill_points(target, sms, max_point_s), max_point_s)

    def _fused_plan(self, target: Target, sms: int, max_point_s: float) -> list[Point]:
        plan = serving_design.fused_design(target)
        return self._enough(plan, design_points.fused_points(target, sms, max_point_s), max_point_s)

    def _enough(self, plan: list[Point], ladder: list[Point], max_point_s: float) -> list[Point]:
        """The plan as far as the engine and the budget bear it; a small engine gets points of the ladder
        beside."""
        points = list(design_points.possible(plan, self._target, max_point_s))
        rest = [point for point in ladder if point not in set(points)]
        missing = min(len(rest), max(0, LEAST_PLANNED - len(points)))
        return [*points, *self._random.sample(rest, missing)]

    def _open_ones(self) -> list[PredictorCampaign]:
        return [one for one in self._predictors if one.is_open]

    def _predictor_of(self, sample: Sample) -> PredictorCampaign | None:
        """None for a pair."""
        wanted = (sample.point.mode, sample.sms)
        return next((one for one in self._predictors if (one.family.name, one.sms) == wanted), None)

    def _learn(self, predictor: PredictorCampaign, sample: Sample) -> bool:
        """Whether the point is settled."""
        if predictor.family is not designs.DECODE:
            self._shortest_s = min(self._shortest_s, sample.seconds)
        return predictor.add(sample, self._shortest_s)

    def _dominated(self, predictor: PredictorCampaign, point: Point) -> list[Point]:
        """What is to be measured again now that a point is settled: this point, or others that took longer
        though they are less work."""
        others = [one for one in self._predictors if one.family is predictor.family]
        settled = [(one, sample) for one in others for sample in one.samples.values()]
        mine = predictor.samples[point]
        found = [(predictor, mine)] if any(is_dominated(mine, other) for _, other in settled) else []
        found += [(one, other) for one, other in settled if is_dominated(other, mine)]
        waiting = {waiting for _, waiting in self._again}
        return [
            sample.point
            for one, sample in found
            if sample.point not in waiting and one.replicates_of(sample.point) < MOST_REPLICATES
        ]

    def _later(self, point: Point, apart_s: float) -> None:
        insort(self._again, (self._elapsed_s + apart_s, point), key=lambda one: one[0])

    def _step(self, point: Point) -> Step:
        once_s = design_points.cost_s(self._target, point)
        repeats = 1
        if point.mode != "colocated":
            repeats = 3 if once_s < STALL_S else 2 if once_s < 2.0 * STALL_S else 1
        if point.mode == "prefill":
            repeats = 2 if once_s < STALL_S else 1  # each waits for its launching, and scatters by 1%
        self._asked = Step(point=point, repeats=repeats, expected_s=once_s * repeats)
        return self._asked


def _planned(family: designs.Family[object], target: Target, knots: tuple[int, ...]) -> Design:
    """What the points are chosen to determine: a time for each size of graph, or a line with bends.

    Where experts bend the line it is the line: a short campaign that looks for the time of each graph has the
    smallest and the largest ones, and none where the number of touched experts grows.
    """
    captured = family.captured(target.hello)
    if family.knows_experts and target.model.experts is not None:
        return Design(knots=knots, captured_bs=captured, experts=target.model.experts)
    return Design(own_bs=captured, captured_bs=captured) if captured else Design(knots=knots)
