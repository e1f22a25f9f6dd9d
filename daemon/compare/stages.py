"""A whole comparison: goodput of every cell, then what a report shows beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pdmuxd.daemon.compare.goodput import (
    CellGoodput,
    find_goodput,
    goodput_of_points,
    prefill_capacity_rps,
    run_point,
)
from pdmuxd.daemon.compare.plan import Cell, ComparePlan, Point
from pdmuxd.daemon.compare.probe import Probe
from pdmuxd.daemon.compare.statistics import estimate
from pdmuxd.daemon.replay.pool import Work, run_tasks
from pdmuxd.daemon.replay.run import PolicyReplay, replay_policy

Found = TypeVar("Found")

CURVE = (0.25, 0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5)
"""Rates of the goodput curves, as shares of the best policy's goodput."""


class OnStage(Protocol):
    """Follows a comparison; every stage is a number of tasks."""

    def stage(self, title: str, tasks: int) -> None:
        """A new stage begins."""

    def trying(self, label: str) -> None:
        """What some worker is doing now."""

    def done(self) -> None:
        """One task is done."""


class Unseen:
    """Shows nothing."""

    def stage(self, title: str, tasks: int) -> None:
        """Ignore."""

    def trying(self, label: str) -> None:
        """Ignore."""

    def done(self) -> None:
        """Ignore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonRate:
    """All policies at one rate: what the best one holds."""

    tbt_s: float
    rate_rps: float
    replays: tuple[PolicyReplay, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that was found out."""

    cells: tuple[CellGoodput, ...]
    """By TBT target, then in the order of the policies."""
    curve: tuple[tuple[Point, Probe], ...]
    common: tuple[CommonRate, ...]


def compare(
    plan: ComparePlan,
    policies: Sequence[str],
    tbts_s: Sequence[float],
    *,
    rates_rps: Sequence[float] = (),
    detail: bool = False,
    jobs: int = 1,
    progress: OnStage | None = None,
) -> Comparison:
    """Find every policy's goodput under every TBT target.

    With `rates_rps`, goodput is the highest of them that held; otherwise it is searched for. `detail`
    adds the curve (which given rates have anyway) and the replays at a common rate.
    Raises: PolicyError or PartitionError; EngineLostError if a worker process dies.
    """
    follow = progress or Unseen()
    cells = [Cell(policy=policy, tbt_s=tbt_s) for tbt_s in tbts_s for policy in policies]
    if rates_rps:
        grid = _grid(cells, lambda _tbt_s: rates_rps, plan.seeds)
        curve = at_points("attainment", run_point, plan, grid, jobs, follow)
        found = [goodput_of_points(plan, cell, curve) for cell in cells]
    else:
        follow.stage("goodput", len(cells))
        found = goodputs(plan, cells, jobs, follow)
        curve = []
    best = {tbt_s: best_rate_rps(plan, found, tbt_s) for tbt_s in tbts_s}
    if detail and not rates_rps:
        grid = _grid(cells, lambda tbt_s: [share * best[tbt_s] for share in CURVE], plan.seeds[:1])
        curve = at_points("attainment", run_point, plan, grid, jobs, follow)
    common = _common(plan, cells, best, jobs, follow) if detail else ()
    return Comparison(cells=tuple(found), curve=tuple(curve), common=common)


def goodputs(
    plan: ComparePlan,
    cells: Sequence[Cell],
    jobs: int,
    follow: OnStage,
    on_cell: Callable[[CellGoodput], None] = lambda _cell: None,
) -> list[CellGoodput]:
    """The search in every cell; `on_cell` is called as results come."""

    def on_done(_index: int, result: CellGoodput) -> None:
        follow.done()
        on_cell(result)

    return run_tasks(
        find_goodput,
        plan,
        cells,
        jobs,
        on_report=lambda index, rate_rps: follow.trying(_label(cells[index], rate_rps)),
        on_done=on_done,
    )


def at_points(
    title: str,
    work: Work[ComparePlan, Point, float, Found],
    plan: ComparePlan,
    points: Sequence[Point],
    jobs: int,
    follow: OnStage,
) -> list[tuple[Point, Found]]:
    """A stage of its own: `work` at every point, which reports the rate it tries."""
    follow.stage(title, len(points))
    found = run_tasks(
        work,
        plan,
        points,
        jobs,
        on_report=lambda index, rate_rps: follow.trying(_label(points[index].cell, rate_rps)),
        on_done=lambda _index, _found: follow.done(),
    )
    return list(zip(points, found, strict=True))


def best_rate_rps(plan: ComparePlan, found: Sequence[CellGoodput], tbt_s: float) -> float:
    """The highest mean goodput under a target; if nobody holds any rate, half of what prefill alone could."""
    means = [mean_rps(cell) for cell in found if cell.tbt_s == tbt_s]
    return max(means, default=0.0) or 0.5 * prefill_capacity_rps(plan)


def mean_rps(cell: CellGoodput) -> float:
    """The mean over the seeds."""
    return estimate([seed.rate_rps for seed in cell.seeds]).mean


def _grid(
    cells: Sequence[Cell], rates_rps: Callable[[float], Sequence[float]], seeds: Sequence[int]
) -> list[Point]:
    return [
        Point(cell=cell, rate_rps=rate_rps, seed=seed)
        for cell in cells
        for rate_rps in rates_rps(cell.tbt_s)
        for seed in seeds
    ]


def _common(
    plan: ComparePlan, cells: Sequence[Cell], best: dict[float, float], jobs: int, follow: OnStage
) -> tuple[CommonRate, ...]:
    points = [Point(cell=cell, rate_rps=best[cell.tbt_s], seed=plan.seeds[0]) for cell in cells]
    pairs = at_points("common rate", _replay_point, plan, points, jobs, follow)
    return tuple(
        CommonRate(
            tbt_s=tbt_s,
            rate_rps=rate_rps,
            replays=tuple(replay for point, replay in pairs if point.cell.tbt_s == tbt_s),
        )
        for tbt_s, rate_rps in best.items()
    )


def _replay_point(plan: ComparePlan, point: Point, report: Callable[[float], None]) -> PolicyReplay:
    report(point.rate_rps)
    run = plan.run(point.rate_rps, point.cell.tbt_s, point.seed)
    return replay_policy(run, point.cell.policy, lambda _done, _now_s: None)


def _label(cell: Cell, rate_rps: float) -> str:
    return f"{cell.policy}, TBT {cell.tbt_s * 1000.0:g} ms, {rate_rps:.3g}/s"
