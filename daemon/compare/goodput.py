"""Goodput of a cell: the highest rate at which enough requests are good, for every seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pdmuxd.daemon.compare.plan import FEWEST_EXPECTED, MAX_RATE_RPS, Cell, ComparePlan, Point
from pdmuxd.daemon.compare.probe import Probe, holds, probe
from pdmuxd.daemon.compare.search import FIRST_STEP, highest_passing, point_of, rate_at
from pdmuxd.daemon.replay.metrics import Metrics

HINT_REQUESTS = 2000


class SeedGoodput(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's search."""

    seed: int
    rate_rps: float
    """0 if no rate was held."""
    metrics: Metrics | None
    """Of the run at that rate; None if no rate was held."""
    probes: tuple[Probe, ...]
    """All runs in the order of their rates, without their metrics."""


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
        result = _search(plan, cell, seed, start, first_step, report)
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
            _best(seed, probes, [p for p in probes if holds(p, slo)]) for seed, probes in by_seed.items()
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
    return _best(seed, probes.values(), held)


def _best(seed: int, probes: Iterable[Probe], held: Sequence[Probe]) -> SeedGoodput:
    best = max(held, key=lambda p: p.rate_rps, default=None)
    return SeedGoodput(
        seed=seed,
        rate_rps=best.rate_rps if best else 0.0,
        metrics=best.metrics if best else None,
        probes=tuple(
            msgspec.structs.replace(p, metrics=None) for p in sorted(probes, key=lambda p: p.rate_rps)
        ),
    )


def _lowest_rps(plan: ComparePlan) -> float:
    return FEWEST_EXPECTED / plan.seconds
