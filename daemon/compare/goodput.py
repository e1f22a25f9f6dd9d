"""Goodput of a cell: the highest rate at which enough requests are good, for every seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from pdmuxd.daemon.compare.plan import FEWEST_EXPECTED, MAX_RATE_RPS, Cell, ComparePlan, Point
from pdmuxd.daemon.compare.probe import Probe, holds, probe
from pdmuxd.daemon.compare.search import FIRST_STEP, highest_passing, point_of, rate_at
from pdmuxd.daemon.replay.metrics import Metrics

HINT_REQUESTS = 2000
BY_CHANCE = 2.0
"""Standard deviations that two counts of misses may differ by chance."""


class SeedGoodput(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's search."""

    seed: int
    rate_rps: float
    """0 if no rate was held."""
    metrics: Metrics | None
    """Of the run at that rate; None if no rate was held."""
    probes: tuple[Probe, ...]
    """All runs in the order of their rates, without their metrics."""
    seconds: float
    """Of arrivals in the run that held the rate."""
    stands: bool | None = None
    """Whether a run twice as long held the rate as well; None if no run was doubled."""


class CellGoodput(msgspec.Struct, frozen=True, kw_only=True):
    """All seeds of one policy under one TBT target."""

    policy: str
    tbt_s: float
    seeds: tuple[SeedGoodput, ...]


def find_goodput(plan: ComparePlan, cell: Cell, report: Callable[[float], None]) -> CellGoodput:
    """Search for every seed; `report` is given the rates that are tried."""
    start = point_of(prefill_capacity_rps(plan), plan.resolution)
    first_step, found = FIRST_STEP, []
    for seed in plan.seeds:
        result = _settled(plan, cell, _search(plan, cell, seed, start, first_step, report), report)
        found.append(result)
        if result.rate_rps > 0:  # where one seed ends, the next is not far
            start, first_step = point_of(result.rate_rps, plan.resolution), 2
    return CellGoodput(policy=cell.policy, tbt_s=cell.tbt_s, seeds=tuple(found))


def run_point(plan: ComparePlan, point: Point, report: Callable[[float], None]) -> Probe:
    """One run to its end, whatever becomes of it."""
    report(point.rate_rps)
    run = plan.run(point.rate_rps, point.cell.tbt_s, point.seed)
    return probe(run, point.cell.policy, point.rate_rps, give_up=False)


def goodput_of_points(plan: ComparePlan, cell: Cell, runs: Iterable[tuple[Point, Probe]]) -> CellGoodput:
    """The same from runs at chosen rates: each seed's highest rate that held."""
    by_seed: dict[int, list[Probe]] = {seed: [] for seed in plan.seeds}
    for point, found in runs:
        if point.cell == cell:
            by_seed[point.seed].append(found)
    slo = plan.slo(cell.tbt_s)
    return CellGoodput(
        policy=cell.policy,
        tbt_s=cell.tbt_s,
        seeds=tuple(
            _best(plan, seed, probes, [p for p in probes if holds(p, slo)])
            for seed, probes in by_seed.items()
        ),
    )


def prefill_capacity_rps(plan: ComparePlan) -> float:
    """Requests a second that the whole device could prefill one by one: where a search begins."""
    requests = plan.trace.requests[:HINT_REQUESTS]
    sms, predictor = plan.profile.device.total_sms, plan.profile.predictor
    total_s = math.fsum(predictor.request_s(request.input_tokens, 0, sms) for request in requests)
    return min(max(len(requests) / total_s, _lowest_rps(plan)), MAX_RATE_RPS)


def _search(
    plan: ComparePlan, cell: Cell, seed: int, start: int, first_step: int, report: Callable[[float], None]
) -> SeedGoodput:
    slo = plan.slo(cell.tbt_s)
    probes: dict[int, Probe] = {}

    def passes(point: int) -> bool:
        rate_rps = rate_at(point, plan.resolution)
        report(rate_rps)
        probes[point] = probe(plan.run(rate_rps, cell.tbt_s, seed), cell.policy, rate_rps)
        return holds(probes[point], slo)

    found = highest_passing(
        passes,
        start=start,
        lowest=math.ceil(math.log(_lowest_rps(plan)) / math.log1p(plan.resolution)),
        highest=point_of(MAX_RATE_RPS, plan.resolution),
        first_step=first_step,
    )
    held = [] if found is None else [probes[found]]
    return _best(plan, seed, probes.values(), held)


def _settled(
    plan: ComparePlan, cell: Cell, found: SeedGoodput, report: Callable[[float], None]
) -> SeedGoodput:
    """Double the run until the share of good requests falls no more, at a lower rate if need be.

    A queue that grows slowly is not seen in a short run: its last requests are in time, and those that would
    have come next are not.
    """
    for doubling in range(1, plan.doublings + 1):
        before = found.metrics
        if before is None:
            break
        longer = replace(plan, seconds=plan.seconds * 2**doubling)
        report(found.rate_rps)
        run = probe(longer.run(found.rate_rps, cell.tbt_s, found.seed), cell.policy, found.rate_rps)
        probes, stands = (*found.probes, run), False
        if holds(run, plan.slo(cell.tbt_s)) and run.metrics is not None:
            found = _best(longer, found.seed, probes, [run])
            stands = not _more_missed(before, run.metrics)
        else:
            start = point_of(found.rate_rps, plan.resolution) - 1
            lower = _search(longer, cell, found.seed, start, 1, report)
            found = msgspec.structs.replace(lower, probes=_by_rate((*probes, *lower.probes)))
        found = msgspec.structs.replace(found, stands=stands)
        if stands:
            break
    return found


def _more_missed(first: Metrics, both: Metrics) -> bool:
    """Whether more requests of the second half missed than of the first, beyond chance (counts of rare
    events scatter by their square root)."""
    early = (1.0 - first.good_ratio) * first.requests
    late = max(0.0, (1.0 - both.good_ratio) * both.requests - early)
    share = (both.requests - first.requests) / first.requests
    return late - early * share > BY_CHANCE * math.sqrt(early * share * share + late)


def _best(plan: ComparePlan, seed: int, probes: Iterable[Probe], held: Sequence[Probe]) -> SeedGoodput:
    best = max(held, key=lambda p: p.rate_rps, default=None)
    return SeedGoodput(
        seed=seed,
        rate_rps=best.rate_rps if best else 0.0,
        metrics=best.metrics if best else None,
        probes=_by_rate(probes),
        seconds=plan.seconds,
    )


def _by_rate(probes: Iterable[Probe]) -> tuple[Probe, ...]:
    return tuple(msgspec.structs.replace(p, metrics=None) for p in sorted(probes, key=lambda p: p.rate_rps))


def _lowest_rps(plan: ComparePlan) -> float:
    return FEWEST_EXPECTED / plan.seconds
