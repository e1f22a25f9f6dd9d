"""What a comparison runs, and the pieces of it that a worker does."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.daemon.compare.workload import draw
from pdmuxd.daemon.replay.run import ReplayPlan
from pdmuxd.daemon.replay.trace import Trace
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.profile import Profile

DEFAULT_RESOLUTION = 0.03
DEFAULT_DOUBLINGS = 2
MAX_RATE_RPS = 10_000.0
FEWEST_EXPECTED = 5.0
"""A run with fewer expected requests says nothing: below such a rate, the goodput is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePlan:
    """What all policies of a comparison have in common."""

    trace: Trace
    profile: Profile
    ttft_fixed_s: float
    ttft_per_1k_new_tokens_s: float
    attainment_ratio: float
    seconds: float
    """Of arrivals in one run; then the run is drained."""
    seeds: tuple[int, ...]
    shuffle: bool = False
    resolution: float = DEFAULT_RESOLUTION
    """How far apart, relatively, two neighbouring rates of the search are."""
    e2e_s: float | None = None
    """Of whole answers; None: they have no target."""
    doublings: int = 0
    """How often a run is doubled, at most, to see whether the rate that was found stands."""

    def slo(self, tbt_s: float) -> Slo:
        """The targets of every request of a run. Raises: SloError."""
        return Slo(
            ttft_fixed_s=self.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=self.ttft_per_1k_new_tokens_s,
            tbt_s=tbt_s,
            attainment_ratio=self.attainment_ratio,
            e2e_s=self.e2e_s,
        )

    def run(self, rate_rps: float, tbt_s: float, seed: int) -> ReplayPlan:
        """One run at one rate: the same for every policy."""
        trace = draw(self.trace, rate_rps=rate_rps, seconds=self.seconds, seed=seed, shuffle=self.shuffle)
        return ReplayPlan(trace=trace, profile=self.profile, slo=self.slo(tbt_s), seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One policy under one TBT target."""

    policy: str
    tbt_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of a cell."""

    cell: Cell
    rate_rps: float
    seed: int
