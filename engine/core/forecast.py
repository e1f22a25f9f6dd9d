"""What each split would do for a TBT target: the best-fit rule asked in advance, for people.

Pure. It follows `policies/bestfit.py` (the fewest decode SMs whose worst case meets the target) and
`fusing.py` (a fused batch is planned for a share of the target), for a load that is given and not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.fusing import BUDGET_LADDER, FUSED_MARGIN
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.types import DecodeShape, PrefillShape, Reason

GuardRatio = Callable[[int, PrefillShape, DecodeShape], float]
"""From (decode SMs, prefill, decode) to the worst slowdown of decode beside that prefill; at least 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The work that is assumed: one prefill batch beside one decode batch."""

    prefill: PrefillShape
    decode: DecodeShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitForecast:
    """One split under that load."""

    partition_id: int
    partition: Partition
    decode_s: float
    """One decode step alone."""
    guard_ratio: float
    prefill_s: float
    """The whole prefill batch alone."""
    target_s: float

    @property
    def worst_s(self) -> float:
        """The longest gap to expect beside the prefill."""
        return self.decode_s * self.guard_ratio

    @property
    def meets(self) -> bool:
        """Whether that is within the target."""
        return self.worst_s <= self.target_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedForecast:
    """The largest fused batch within the target; None as `step_s` if none is."""

    token_budget: int
    step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """All splits, by growing decode SMs, and the one that would be chosen."""

    groups: tuple[SplitForecast, ...]
    chosen: SplitForecast | None
    """None if the device has no split."""
    fused: FusedForecast

    @property
    def reason(self) -> Reason:
        """As the decision would say it."""
        feasible = self.chosen is not None and self.chosen.meets
        return Reason.BEST_FIT if feasible else Reason.TBT_INFEASIBLE


def forecast(
    target_s: float,
    load: Load,
    groups: Sequence[Partition],
    latency: LatencyModel,
    guard_ratio: GuardRatio,
) -> Forecast:
    """Ask every split of `groups`, which are indexed as the engine's table is.

    The margin against switching back and forth is left out: it depends on the group in force.
    """
    found = tuple(
        SplitForecast(
            partition_id=index,
            partition=group,
            decode_s=latency.decode_s(load.decode, group.decode_sms),
            guard_ratio=guard_ratio(group.decode_sms, load.prefill, load.decode),
            prefill_s=latency.prefill_s(load.prefill, group.prefill_sms),
            target_s=target_s,
        )
        for index, group in enumerate(groups)
        if group.prefill_sms and group.decode_sms
    )
    total_sms = max((group.prefill_sms + group.decode_sms for group in groups), default=0)
    chosen = next((each for each in found if each.meets), found[-1] if found else None)
    return Forecast(groups=found, chosen=chosen, fused=_fused(target_s, load, latency, total_sms))


def _fused(target_s: float, load: Load, latency: LatencyModel, total_sms: int) -> FusedForecast:
    """The largest chunk of the prefill's new tokens that fits beside the decode batch."""
    best = FusedForecast(token_budget=0, step_s=None)
    reused_tokens = load.prefill.reused_tokens // max(1, load.prefill.bs)
    for tokens in BUDGET_LADDER if total_sms else ():
        chunk = PrefillShape.of([(min(tokens, load.prefill.new_tokens), reused_tokens)])
        step_s = latency.fused_s(chunk, load.decode, total_sms)
        if step_s > target_s * FUSED_MARGIN:
            break
        best = FusedForecast(token_budget=chunk.new_tokens, step_s=step_s)
        if tokens >= load.prefill.new_tokens:
            break
    return best
