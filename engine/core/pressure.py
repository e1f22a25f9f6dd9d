"""The instance-pressure controller: which pool of a fleet should give an instance to the other, and when.

Pure: the caller measures, passes the time, and carries out the move. At most one instance moves at a time.
Source: PLA-Serve section 3.2, algorithm 2.

Hysteresis alone does not stop a small fleet from swinging: with one instance against two, a move doubles one
pool and halves the other. So the controller also predicts each move, as if the pool's work were shared anew
among its instances, and does not make a move that the next round would undo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pdmuxd.engine.core.errors import PolicyError


class Pool(StrEnum):
    """What an instance serves, and nothing else."""

    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSignals:
    """What is measured of one instance over a control period."""

    queue_s: float
    """q: seconds of prefill that wait."""
    late_ratio: float
    """e: share of the requests given their first token, or still waiting, that are past their deadline."""
    busy_ratio: float
    """u: share of the device's SM-seconds in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureRules:
    """The controller's constants. Raises: PolicyError naming the one that is out of range.

    The paper gives no values. Backlog is in seconds, and a TTFT target is a fraction of a second, so that
    late requests weigh as much as a second of backlog. Use counts a little, as in line 19: so little that an
    idle pool never ranks above one with a backlog.
    """

    period_s: float = 1.0
    cooldown_s: float = 5.0
    hysteresis: float = 0.5
    """tau: how much higher one pressure must be than the other."""
    least_pressure: float = 0.05
    """Below this nothing is wrong in the pool, whatever the other's pressure is: a ratio of two tiny numbers
    is noise."""
    min_instances: int = 1
    queue_weight: float = 1.0
    late_weight: float = 1.0
    busy_weight: float = 0.01
    quantile: float = 0.9

    def __post_init__(self) -> None:
        for field in ("period_s", "min_instances"):
            if not getattr(self, field) > 0:
                raise PolicyError(f"pressure.{field} is {getattr(self, field)}; it must be positive")
        for field in (
            "cooldown_s",
            "hysteresis",
            "least_pressure",
            "queue_weight",
            "late_weight",
            "busy_weight",
        ):
            if not getattr(self, field) >= 0:
                raise PolicyError(f"pressure.{field} is {getattr(self, field)}; it must not be negative")
        if not 0.0 < self.quantile <= 1.0:
            raise PolicyError(f"pressure.quantile is {self.quantile}; it must be above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureState:
    """How many instances each pool has, and when one last moved. Raises: PolicyError if a pool is empty."""

    short: int
    long: int
    moved_s: float = -math.inf

    def __post_init__(self) -> None:
        if self.short < 1 or self.long < 1:
            raise PolicyError(
                f"{self.short} short and {self.long} long instances: each pool needs at least one"
            )


def pressure(signals: InstanceSignals, rules: PressureRules) -> float:
    """psi = alpha * q + beta * e - gamma * u."""
    return (
        rules.queue_weight * signals.queue_s
        + rules.late_weight * signals.late_ratio
        - rules.busy_weight * signals.busy_ratio
    )


def pool_pressure(instances: Sequence[InstanceSignals], rules: PressureRules) -> float:
    """P = the quantile (nearest rank) of the instances' pressures; never negative."""
    ranked = sorted(pressure(signals, rules) for signals in instances)
    return max(0.0, ranked[math.ceil(rules.quantile * len(ranked)) - 1])


def control(
    state: PressureState,
    shorts: Sequence[InstanceSignals],
    longs: Sequence[InstanceSignals],
    *,
    now_s: float,
    rules: PressureRules,
) -> tuple[Pool | None, PressureState]:
    """The pool that gets an instance from the other, if any, and the state after it (lines 23 to 28)."""
    if now_s - state.moved_s < rules.cooldown_s:
        return None, state
    short, long = pool_pressure(shorts, rules), pool_pressure(longs, rules)
    if state.long > rules.min_instances and _should_move(short, state.short, long, state.long, rules):
        return Pool.SHORT, replace(state, short=state.short + 1, long=state.long - 1, moved_s=now_s)
    if state.short > rules.min_instances and _should_move(long, state.long, short, state.short, rules):
        return Pool.LONG, replace(state, short=state.short - 1, long=state.long + 1, moved_s=now_s)
    return None, state


def _should_move(taker: float, takers: int, giver: float, givers: int, rules: PressureRules) -> bool:
    """Whether the hysteresis says that `taker` is under pressure, and `taker` would not have to give the
    instance back at once."""
    factor = 1.0 + rules.hysteresis
    if taker <= max(factor * giver, rules.least_pressure):
        return False
    return giver * givers / (givers - 1) <= factor * taker * takers / (takers + 1)
