"""Says who misses what, since when, how many wait, and the likely cause: the first thing that is read.

What is judged is the daemon's own verdict, as REST and metrics tell it. Here it is put into words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pdmuxd.controlplane.events.messages import AlarmEvent, IncidentEvent, StatsEvent, TenantLoad
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.incidents import (
    also_in_words,
    clean_s,
    harm_in_words,
    help_in_words,
    is_over,
    lasted_s,
    missed_in_words,
)
from pdmuxd.tui.show.words import (
    LABELS,
    TARGET_ALARMS,
    cause_in_words,
    met_ratio,
    targets_missed,
    unserved_in_words,
    worst_burn,
)

State = Literal["good", "bad", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A sentence, and what is behind it."""

    state: State
    text: str
    lines: tuple[str, ...] = ()


def verdict(
    telemetry: Telemetry,
    stats: StatsEvent,
    loads: Sequence[TenantLoad],
    incidents: Sequence[IncidentEvent] = (),
    omitted: int = 0,
) -> Verdict:
    """The verdict on the worst tenant; trouble of the engine comes first. `loads` are worst first.

    `incidents` are those of the event `tenants`, with how many more are open.
    """
    waiting = _waiting(stats)
    engine = telemetry.status()
    if engine.state in ("down", "starting"):
        return _without_engine(engine, waiting, telemetry.clock())
    going_on = [one for one in incidents if one.state == "open"]
    if going_on:
        return _going_on(going_on, loads, stats.at, omitted)
    over = [one for one in incidents if one.state == "over"]
    # What was missed stays in five minutes' shares for as long.
    missing = [load for load in loads if load.verdict == "missed" and not is_over(load.tenant, over)]
    if missing:
        return _missing(missing, telemetry, stats.at)
    if over:
        return _over(over, waiting, stats.at)
    busy = [load for load in loads if load.verdict == "met"]
    if not busy:
        return Verdict(state="quiet", text="No traffic to judge.", lines=(waiting,))
    who = busy[0].tenant if len(busy) == 1 else f"All {len(busy)} tenants with traffic"
    closest = max(busy, key=worst_burn)
    near = (
        f"Closest to its limit is {closest.tenant}: {formats.percent(met_ratio(closest), 1)} in time of "
        f"{formats.percent(closest.target_ratio, 1)} promised."
    )
    text = f"{who} {'meets its' if len(busy) == 1 else 'meet their'} targets."
    return Verdict(state="good", text=text, lines=(near, waiting))


def _without_engine(engine: EngineStatus, waiting: str, now_s: float) -> Verdict:
    since = f" for {formats.duration(now_s - engine.since_s)}" if engine.since_s else ""
    why = (engine.last_error,) if engine.last_error else ()
    return Verdict(state="bad", text=f"The engine is {engine.state}{since}.", lines=(*why, waiting))


def _going_on(
    open_: Sequence[IncidentEvent], loads: Sequence[TenantLoad], now: datetime, omitted: int
) -> Verdict:
    first = open_[0]
    load = next((one for one in loads if one.tenant == first.tenant), None)
    also = also_in_words([one.tenant for one in open_[1:]], omitted)
    queue = f"; {_queue_text(load)}" if load is not None and load.late_now else ""
    helps = (f"What would help: {help_in_words(first)}",) if first.command else ()
    return Verdict(
        state="bad",
        text=f"{first.tenant} misses its {missed_in_words(first)} for "
        f"{formats.duration(lasted_s(first, now))}{also}.",
        lines=(f"{harm_in_words(first)}{queue}.", f"Likely cause: {first.text}.", *helps),
    )


def _over(over: Sequence[IncidentEvent], waiting: str, now: datetime) -> Verdict:
    first = over[0]
    also = also_in_words([one.tenant for one in over[1:]], 0, verb="did")
    return Verdict(
        state="quiet",
        text=f"{first.tenant} missed its {missed_in_words(first)} from {first.began_at:%H:%M:%S} to "
        f"{first.last_missed_at:%H:%M:%S} UTC, over for {formats.duration(clean_s(first, now))}{also}.",
        lines=(f"{harm_in_words(first)}.", f"Likely cause: {first.text}.", waiting),
    )


def _queue_text(load: TenantLoad) -> str:
    return (
        f"{formats.count(load.late_now)} of {formats.count(load.waiting)} that wait are late, the oldest has "
        f"waited {formats.duration(load.oldest_wait_ms / 1000)}"
    )


def _missing(missing: Sequence[TenantLoad], telemetry: Telemetry, now: datetime) -> Verdict:
    first = missing[0]
    targets = targets_missed(first) or ["ttft"]
    since = missing_since(first.tenant, telemetry.alarms.active())
    ago = f" for {formats.duration((now - since).total_seconds())}" if since is not None else ""
    more = also_in_words([load.tenant for load in missing[1:]], 0)
    share = (
        f"{formats.percent(met_ratio(first), 1)} of the last 5 minutes in time, "
        f"{formats.percent(first.target_ratio, 1)} promised"
    )
    queue = f"; {_queue_text(first)}" if first.late_now else ""
    unserved = unserved_in_words(first) if "availability" in targets else ""
    cause = likely_cause(first, targets[0], telemetry)
    return Verdict(
        state="bad",
        text=f"{first.tenant} misses its {' and '.join(LABELS[one] for one in targets)}{ago}{more}.",
        lines=(f"{share}{queue}{'; ' if unserved else ''}{unserved}.", f"Likely cause: {cause}."),
    )


def missing_since(tenant: str, alarms: Iterable[AlarmEvent]) -> datetime | None:
    """When the oldest alarm of the tenant's targets began."""
    return min(
        (one.since for one in alarms if one.tenant == tenant and one.kind in TARGET_ALARMS), default=None
    )


def likely_cause(load: TenantLoad, target: str, telemetry: Telemetry) -> str:
    """The most frequent cause of five minutes, in words."""
    counted = causes(telemetry.requests.ended(), telemetry.clock(), tenant=load.tenant, target=target)
    cause = counted.most_common(1)[0][0] if counted else "queued" if load.late_now else "unknown"
    return cause_in_words(cause)


def causes(ended: Iterable[RequestLifecycle], now_s: float, *, tenant: str, target: str) -> Counter[str]:
    """How many requests of the last five minutes missed a target for each cause."""
    return Counter(
        str(violation.cause)
        for request in ended
        if request.tenant == tenant and now_s - (request.ended_s or 0.0) <= FIVE_MINUTES_S
        for violation in request.violations
        if violation.target == target
    )


def _waiting(stats: StatsEvent) -> str:
    if not stats.waiting_total:
        return "Nothing waits."
    late = f"{formats.count(stats.late_now)} of them late" if stats.late_now else "none of them late"
    return f"{formats.count(stats.waiting_total)} wait, {late}."
