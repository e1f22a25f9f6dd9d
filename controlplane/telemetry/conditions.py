"""What is wrong now: the conditions behind the alarms, as functions of what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pdmuxd.controlplane.events.messages import AlarmKind
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry.alarms import Condition
from pdmuxd.controlplane.telemetry.attainment import (
    DAY_S,
    FIVE_MINUTES_S,
    HOUR_S,
    MINUTE_S,
    TargetCounts,
    ViolationCounts,
)
from pdmuxd.controlplane.telemetry.drift import Drift
from pdmuxd.controlplane.telemetry.waiting import OpenCounts

LINK_SILENT_S = 2.0
ENOUGH_REQUESTS = 20
"""In the shorter window: with fewer, one miss looks like a fire."""

ENOUGH_LATE = 3
"""Requests waiting past their target: fewer may be one client's own bad luck."""

BURN_PAIRS = ((FIVE_MINUTES_S, MINUTE_S, 6.0), (HOUR_S, FIVE_MINUTES_S, 2.0), (DAY_S, HOUR_S, 3.0))
"""(long, short, burn): an alarm when both burn as fast. The long window says that it matters, the short one
that it still goes on. At 6 an hour's budget is gone in ten minutes, at 2 in half an hour; a day at 3 takes a
tenth of a month's, in small misses that the short windows may pass over."""

DAY_OVER_HOUR = 4
"""So many times as much must have been judged in a day as in its last hour."""

_BURNS: tuple[tuple[AlarmKind, str, Callable[[TargetCounts], ViolationCounts]], ...] = (
    ("ttft_burn", "TTFT", lambda counts: counts.ttft),
    ("tbt_burn", "TBT", lambda counts: counts.tbt),
    ("e2e_burn", "whole answers", lambda counts: counts.e2e),
    # A client that is held to its own limits is no reason to call anybody.
    ("availability_burn", "availability", lambda counts: counts.availability.without_limited),
)
_WINDOWS = {MINUTE_S: "1 min", FIVE_MINUTES_S: "5 min", HOUR_S: "1 h", DAY_S: "24 h"}
BURN_WINDOWS_S = tuple(_WINDOWS)


def engine_conditions(
    status: EngineStatus, *, silent_s: float | None, has_served: bool
) -> Iterator[Condition]:
    """The engine is down, or says nothing."""
    if status.state == "down" or (status.state == "starting" and has_served):
        yield Condition(kind="engine_down", text=f"the engine is {status.state}: {status.last_error or '?'}")
    elif status.state in ("serving", "draining") and silent_s is not None and silent_s > LINK_SILENT_S:
        yield Condition(kind="link_lost", text="the engine has sent nothing over the link for over 2 s")


def burn_conditions(
    name: str, target_ratio: float, windows: Mapping[float, TargetCounts]
) -> Iterator[Condition]:
    """A tenant's error budget is used up too fast; `windows` are those of BURN_WINDOWS_S."""
    for kind, label, counts_of in _BURNS:
        for long_s, short_s, limit in BURN_PAIRS:
            long, short = counts_of(windows[long_s]), counts_of(windows[short_s])
            # A day of which only the last hour is known says nothing that the hour does not say.
            is_known = long_s < DAY_S or long.judged >= DAY_OVER_HOUR * short.judged
            if short.requests < ENOUGH_REQUESTS or not is_known:
                continue
            burns = (long.burn(target_ratio) or 0.0, short.burn(target_ratio) or 0.0)
            if min(burns) >= min(limit, _most_burn(target_ratio)):
                text = (
                    f"{name}: {label} misses use up the error budget {burns[0]:.1f} times too fast over "
                    f"{_WINDOWS[long_s]}, {burns[1]:.1f} times over {_WINDOWS[short_s]}"
                )
                yield Condition(kind=kind, text=text, tenant=name)
                break


def _most_burn(target_ratio: float) -> float:
    """A burn to be alarmed at whatever the promise: halfway between the budget and everything missed.

    Where a fifth may miss, no budget can be used up more than five times too fast.
    """
    budget_ratio = 1.0 - target_ratio
    return (1.0 + budget_ratio) / 2 / budget_ratio


def late_conditions(waiting: Mapping[str, OpenCounts]) -> Iterator[Condition]:
    """Requests wait past their target, which latencies of requests that ended do not show yet."""
    for name, still in waiting.items():
        if still.late >= ENOUGH_LATE:
            text = (
                f"{name}: {still.late} of {still.waiting} waiting requests are past their TTFT target, "
                f"the oldest has waited {still.oldest_wait_s:.1f} s"
            )
            yield Condition(kind="late_now", text=text, tenant=name)


def dropped_conditions(grown: int) -> Iterator[Condition]:
    """Telemetry was lost since the last look, so figures miss something."""
    if grown > 0:
        yield Condition(
            kind="telemetry_dropped",
            text=f"the engine dropped {grown} records: attainment and decisions miss them",
        )


def drift_conditions(drifts: tuple[Drift, ...], at_bound: tuple[str, ...] = ()) -> Iterator[Condition]:
    """A predictor is off; of those that are corrected, one that cannot be corrected any further."""
    if at_bound:
        text = f"the correction of {', '.join(at_bound)} is at its bound: measure the profile again"
        yield Condition(kind="predictor_drift", text=text)
        return
    worst = max(
        (each for each in drifts if each.is_off), key=lambda each: abs(each.p50_ratio - 1.0), default=None
    )
    if worst is not None:
        where = "fused batches" if worst.work == "fused" else f"{worst.work} on {worst.sms} SMs"
        yield Condition(
            kind="predictor_drift",
            text=f"{where} takes {worst.p50_ratio:.2f} times as long as predicted ({worst.samples} samples)",
        )
