"""Part (a), goodput of policies x workloads x TBT targets, and part (b), what is left beyond capacity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.store import Store, fingerprint
from evaluation.workloads import AZURE_CODE, AZURE_CONV, MOONCAKE, Sources, Workload

from pdmuxd.daemon.compare.goodput import CellGoodput, run_point
from pdmuxd.daemon.compare.plan import Cell, ComparePlan, Point
from pdmuxd.daemon.compare.stages import OnStage, at_points, goodputs
from pdmuxd.daemon.compare.statistics import Estimate, estimate
from pdmuxd.engine.core.slo import DEFAULT_SLO

OURS = "auto"
POLICIES = (OURS, "muxwise", "muxwise:preempt", "drift", "duet", "pla/muxwise", "upstream", "prefill-first")
CHUNKS = tuple(f"chunked:{n}" for n in (128, 256, 512, 1024, 2048))
SPLITS = ("static:112,20", "static:96,36", "static:80,52", "static:64,68")
FIXED = CHUNKS + SPLITS
"""The oracle is the best of them for the very cell."""
WORKLOADS = (AZURE_CONV, AZURE_CODE, MOONCAKE)
LONG_CONTEXT = (MOONCAKE.name,)
TBT_MS = {"h200-llama-8b-measured": (20.0, 50.0), "h200-codellama-34b-measured": (50.0, 100.0)}
OVERLOADS = (1.2, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One column of the table."""

    profile: str
    workload: Workload
    tbt_ms: float

    @property
    def key(self) -> str:
        """In the store, before the policy."""
        return f"{self.profile} {self.workload.name} {self.tbt_ms:g}ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One setting's goodput by policy, in requests a second, with its half-width."""

    setting: Setting
    mean: dict[str, float]
    half: dict[str, float | None]
    beyond: dict[float, dict[str, float]]
    """By overload: good requests a second of `auto` and the best rival, as shares of that rival's goodput."""

    def best(self, of: Sequence[str]) -> str:
        """The best policy of some; the first of equals."""
        return max(of, key=lambda policy: self.mean[policy])

    @property
    def rival(self) -> str:
        """The best policy that is not ours, fixed ones included."""
        return self.best([policy for policy in self.mean if policy != OURS])


def settings(profiles: Sequence[str], workloads: Sequence[str]) -> Iterator[Setting]:
    """All that were asked for, by profile, workload and target."""
    for profile, tbts_ms in TBT_MS.items():
        for workload in WORKLOADS:
            if profile in profiles and workload.name in workloads:
                for tbt_ms in tbts_ms:
                    yield Setting(profile=profile, workload=workload, tbt_ms=tbt_ms)


def run_goodput(sources: Sources, store: Store, wanted: Sequence[Setting], follow: OnStage) -> None:
    """Fill the store; one pool per profile and workload."""
    for profile, workload in dict.fromkeys((s.profile, s.workload) for s in wanted):
        plan = sources.plan(profile, workload)
        tbts_ms = [s.tbt_ms for s in wanted if (s.profile, s.workload) == (profile, workload)]
        cells = [Cell(policy=p, tbt_s=ms / 1000.0) for ms in tbts_ms for p in POLICIES + FIXED]
        search(plan, workload, cells, sources.jobs, store, follow)


def search(
    plan: ComparePlan, workload: Workload, cells: Sequence[Cell], jobs: int, store: Store, follow: OnStage
) -> None:
    """The cells that are not in the store yet."""

    def keep(found: CellGoodput) -> None:
        key, made_with = _cell_key(plan, workload, found.policy, found.tbt_s), fingerprint(plan, found.policy)
        unsettled = any(seed.stands is False for seed in found.seeds)
        value = {"seeds_per_s": [seed.rate_rps for seed in found.seeds], "unsettled": unsettled}
        store.put(key, made_with, value)

    missing = [cell for cell in cells if lookup(plan, workload, cell, store) is None]
    if missing:
        follow.stage(f"{plan.profile.name} {workload.name}", len(missing))
        goodputs(plan, missing, jobs, follow, keep)


def lookup(plan: ComparePlan, workload: Workload, cell: Cell, store: Store) -> Estimate | None:
    """A cell's goodput in requests a second, if it is known."""
    found = of_seeds(plan, workload, cell, store)
    return estimate(found) if found is not None else None


def of_seeds(plan: ComparePlan, workload: Workload, cell: Cell, store: Store) -> list[float] | None:
    """The same for each seed."""
    found = _kept(plan, workload, cell, store)
    return found["seeds_per_s"] if found is not None else None


def is_unsettled(plan: ComparePlan, workload: Workload, cell: Cell, store: Store) -> bool:
    """Whether more requests still missed in the second half of some seed's longest run."""
    found = _kept(plan, workload, cell, store)
    return found is not None and found["unsettled"]


def _kept(plan: ComparePlan, workload: Workload, cell: Cell, store: Store) -> Any:
    key = _cell_key(plan, workload, cell.policy, cell.tbt_s)
    return store.get(key, fingerprint(plan, cell.policy))


def run_beyond(sources: Sources, store: Store, wanted: Sequence[Setting], follow: OnStage) -> None:
    """Both policies of every setting at every overload, unless they are in the store."""
    for setting in wanted:
        plan = sources.plan(setting.profile, setting.workload)
        column = read_column(plan, setting, store)
        if column is None:
            continue
        base_rps = column.mean[column.rival]
        missing = [
            Point(
                cell=Cell(policy=policy, tbt_s=setting.tbt_ms / 1000.0), rate_rps=base_rps * over, seed=seed
            )
            for over in OVERLOADS
            for policy in (OURS, column.rival)
            for seed in plan.seeds
            if base_rps > 0 and _beyond(plan, setting, store, policy, over, base_rps) is None
        ]
        if not missing:
            continue
        found = at_points(f"beyond {setting.key}", run_point, plan, missing, sources.jobs, follow)
        good: dict[tuple[str, float], list[float]] = {}
        for point, probe in found:
            key = (point.cell.policy, point.rate_rps)
            good.setdefault(key, []).append(probe.good_ratio * probe.requests / plan.seconds / base_rps)
        for (policy, rate_rps), shares in good.items():
            over = rate_rps / base_rps
            key, made_with = _beyond_key(plan, setting, policy, over, base_rps)
            store.put(key, made_with, {"share_of_goodput": estimate(shares).mean, "seeds": shares})


def read_column(plan: ComparePlan, setting: Setting, store: Store) -> Column | None:
    """A setting's results so far; None if a policy is missing."""
    mean: dict[str, float] = {}
    half: dict[str, float | None] = {}
    for policy in POLICIES + FIXED:
        found = lookup(plan, setting.workload, Cell(policy=policy, tbt_s=setting.tbt_ms / 1000.0), store)
        if found is None:
            return None
        mean[policy] = found.mean
        half[policy] = found.half_width_95
    column = Column(setting=setting, mean=mean, half=half, beyond={})
    for over in OVERLOADS:
        shares = {
            policy: _beyond(plan, setting, store, policy, over, mean[column.rival])
            for policy in (OURS, column.rival)
        }
        if None not in shares.values():
            column.beyond[over] = {policy: found["share_of_goodput"] for policy, found in shares.items()}
    return column


def _cell_key(plan: ComparePlan, workload: Workload, policy: str, tbt_s: float) -> str:
    loose = "" if plan.ttft_fixed_s == DEFAULT_SLO.ttft_fixed_s else f" ttft {plan.ttft_fixed_s:g}s"
    share = plan.attainment_ratio
    loose += "" if share == DEFAULT_SLO.attainment_ratio else f" {share:g}"
    return f"goodput {plan.profile.name} {workload.name} {tbt_s * 1000.0:g}ms{loose} {policy}"


def _beyond_key(
    plan: ComparePlan, setting: Setting, policy: str, over: float, base_rps: float
) -> tuple[str, str]:
    return f"beyond {setting.key} {over:.2f} {policy}", fingerprint(plan, policy, round(base_rps, 6))


def _beyond(
    plan: ComparePlan, setting: Setting, store: Store, policy: str, over: float, base_rps: float
) -> Any:
    return store.get(*_beyond_key(plan, setting, policy, over, base_rps))
