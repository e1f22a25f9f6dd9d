"""One run at one rate under one policy, given up as soon as it is certain that too many requests missed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.daemon.replay.metrics import ROUNDING_S, Metrics, measure
from pdmuxd.daemon.replay.run import ReplayedEngine, ReplayPlan, emulated, engine_totals, start_engine
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase

CHECKS_PER_RUN = 240
"""How often a run looks for requests that are still waiting although their first token is overdue."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run."""

    rate_rps: float
    requests: int
    good_ratio: float
    """Of all requests; an upper bound if the run was given up."""
    gave_up: bool = False
    metrics: Metrics | None
    """None if the run was given up, and in the record of a search."""


def probe(plan: ReplayPlan, policy: str, rate_rps: float, *, give_up: bool = True) -> Probe:
    """Run `plan.trace`, which was drawn at `rate_rps`, under its SLO.

    With `give_up`, stops once fewer than the SLO's attainment can still be good.
    Raises: PolicyError or PartitionError if the profile's device cannot run the policy.
    """
    requests = emulated(plan.trace)
    misses = MissCounter(requests, plan.slo)
    allowed = allowed_misses(len(requests), plan.slo) if give_up else len(requests)
    engine = start_engine(plan, policy, requests, misses)
    race = _Race(engine)

    def check(now_s: float) -> None:
        if not race.over:
            race.over = misses.certain(now_s) > allowed

    drive(race, requests, sample_every_s=plan.trace.requests[-1].arrival_s / CHECKS_PER_RUN, on_sample=check)
    if race.over:
        good_ratio = 1.0 - misses.count / len(requests)
        return Probe(
            rate_rps=rate_rps, requests=len(requests), good_ratio=good_ratio, gave_up=True, metrics=None
        )
    outcomes = misses.outcomes()
    metrics = measure(outcomes, engine_totals(engine, outcomes, misses.tbt_use()), plan.slo)
    return Probe(rate_rps=rate_rps, requests=len(requests), good_ratio=metrics.good_ratio, metrics=metrics)


def allowed_misses(requests: int, slo: Slo) -> int:
    """How many of so many requests may miss a target without the attainment being missed."""
    return math.floor((1.0 - slo.attainment_ratio) * requests + 1e-9)


def holds(found: Probe, slo: Slo) -> bool:
    """Whether the run reached the SLO's attainment."""
    missed = round((1.0 - found.good_ratio) * found.requests)
    return not found.gave_up and missed <= allowed_misses(found.requests, slo)


class MissCounter(Collector):
    """Counts requests that can no longer be good (`metrics.measure` says which are), as they happen."""

    def __init__(self, requests: Sequence[EmulatedRequest], slo: Slo) -> None:
        super().__init__(requests, slo.tbt_s)
        self._slo = slo
        self._missed = np.zeros(len(requests), dtype=np.bool_)
        self._silent = np.ones(len(requests), dtype=np.bool_)
        # What is cached only lowers a target, so nobody silent at this instant can still be in time.
        self._overdue_s = np.array(
            [request.arrival_s + slo.ttft_target_s(request.input_tokens) for request in requests]
        )
        self.count = 0

    def certain(self, now_s: float) -> int:
        """How many have missed at `now_s`."""
        self._missed |= self._silent & (self._overdue_s + ROUNDING_S < now_s)
        self.count = int(np.count_nonzero(self._missed))
        return self.count

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        """Judge TTFT; the first token after a retraction is not the first."""
        i = int(request.request_id)
        if self._silent[i]:
            self._silent[i] = False
            target_s = self._slo.ttft_target_s(max(request.input_tokens - request.reused_tokens, 1))
            self._missed[i] |= now_s - request.arrival_s > target_s + ROUNDING_S

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        super().on_end(request, now_s)
        i = int(request.request_id)
        self._missed[i] |= request.phase is not Phase.FINISHED or self._gap_p99_s[i] > self._limit_s


class _Race:
    """An engine to which nothing happens any more once the race is over."""

    def __init__(self, engine: ReplayedEngine) -> None:
        self._engine = engine
        self.over = False

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        if not self.over:
            self._engine.submit(request, now_s)

    def next_event_s(self) -> float:
        return math.inf if self.over else self._engine.next_event_s()

    def advance(self, until_s: float) -> None:
        if not self.over:
            self._engine.advance(until_s)
