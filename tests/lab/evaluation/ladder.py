"""The ladder: what each mechanism of `auto` gives, from a fixed chunk on, on six made-up loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluation.goodput import is_unsettled, of_seeds, search
from evaluation.store import Store
from evaluation.workloads import Sources, Workload

from pdmuxd.daemon.compare.ladder import RUNGS, rungs
from pdmuxd.daemon.compare.plan import Cell, ComparePlan
from pdmuxd.daemon.compare.stages import OnStage

PROFILE, TBT_S, CHUNK_TOKENS = "h200-llama-8b-measured", 0.050, 1024
ATTAINMENTS = (0.95, 0.99)
SEEDS = (0, 1, 2)
RESOLUTION = 0.03
FEWEST_MISSES = 5.0
"""With fewer that may miss, which requests a run happens to have decides."""


def _load(kind: str, title: str, rps: float, seconds: float, *, shuffle: bool = True) -> Workload:
    return Workload(
        name=kind,
        title=title,
        file=None,
        shuffle=shuffle,
        seconds=seconds,
        quick_seconds=seconds / 2.0,
        kind=kind,
        kind_rps=rps,
    )


LOADS = (
    _load("chat", "short chat", 200.0, 15.0),
    _load("summaries", "mixed: summaries", 12.0, 80.0),
    _load("documents", "long documents and questions", 3.0, 160.0),
    _load("tools", "tools", 3.0, 120.0),
    _load("agents", "coding agents", 1.0, 150.0, shuffle=False),
    _load("reasoning", "reasoning", 12.0, 75.0),
)
BESIDE = ("auto:nofuse", "muxwise:preempt")
"""Not rungs: the whole without fused steps, and the paper's strongest policy on long prompts."""
POLICIES = (*rungs(CHUNK_TOKENS), *BESIDE)
NAMES = (*(name for name, _ in RUNGS), "*all, but no fused steps*", "*MuxWise with preemption*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """One load at one attainment: by policy, the goodput of each seed in requests a second."""

    load: Workload
    attainment_ratio: float
    per_s: dict[str, list[float]]
    seconds: float
    unsettled: tuple[str, ...] = ()
    """Policies whose rate may be too high: more missed in the second half of the longest run."""

    @property
    def is_long_enough(self) -> bool:
        """Whether more than a handful of requests may miss in a run at the highest goodput."""
        best = max((sum(rates) / len(rates) for rates in self.per_s.values()), default=0.0)
        return best * self.seconds * (1.0 - self.attainment_ratio) >= FEWEST_MISSES


def plan_of(sources: Sources, load: Workload, attainment_ratio: float) -> ComparePlan:
    """Three seeds, quick or not: a rung is compared seed by seed."""
    return sources.plan(PROFILE, load, attainment_ratio=attainment_ratio, seeds=SEEDS, resolution=RESOLUTION)


def run_ladders(sources: Sources, store: Store, names: Sequence[str], follow: OnStage) -> None:
    """Fill the store."""
    cells = [Cell(policy=policy, tbt_s=TBT_S) for policy in POLICIES]
    for share in ATTAINMENTS:
        for load in LOADS:
            if load.name in names:
                search(plan_of(sources, load, share), load, cells, sources.jobs, store, follow)


def ladders(sources: Sources, store: Store) -> Iterator[Ladder]:
    """Those that are whole in the store."""
    for share in ATTAINMENTS:
        for load in LOADS:
            plan = plan_of(sources, load, share)
            found = {
                policy: of_seeds(plan, load, Cell(policy=policy, tbt_s=TBT_S), store) for policy in POLICIES
            }
            per_s = {policy: rates for policy, rates in found.items() if rates is not None}
            if len(per_s) == len(POLICIES):
                unsettled = [
                    policy
                    for policy in POLICIES
                    if is_unsettled(plan, load, Cell(policy=policy, tbt_s=TBT_S), store)
                ]
                yield Ladder(
                    load=load,
                    attainment_ratio=share,
                    per_s=per_s,
                    seconds=plan.seconds,
                    unsettled=tuple(unsettled),
                )
