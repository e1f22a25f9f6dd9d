"""Says who misses what, since when, how many wait, and the likely cause: the first thing that is read.

What is judged is the daemon's: `verdict`, the burn of the last five minutes and what is late now, as
/api/v1/attainment and /metrics have them. Here it is put into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pdmuxd.tui.client.connection import Link
from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.wire import IncidentEvent, TenantLoad
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
from pdmuxd.tui.show.lines import clip, in_text
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.words import (
    CAUSES,
    LABELS,
    TARGET_ALARMS,
    cause_in_words,
    met_ratio,
    targets_missed,
    unserved_in_words,
    worst_burn,
    worst_first,
)
from pdmuxd.tui.state.answers import known
from pdmuxd.tui.state.console import ConsoleState
from pdmuxd.tui.state.tenants import is_missing
from pdmuxd.tui.state.view import View

_SHORT_NAME_WIDTH = 16
"""Of a tenant in the status line."""
MUCH = 0.3
"""A share of what is computed or waits from which on a tenant is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence, and what is behind it."""

    short: str
    """For the status line: at most some 60 cells."""
    role: Role
    mark: str
    lines: tuple[str, ...] = ()
    """The whole of it, a sentence each."""


CONNECTING = Verdict(
    short="connecting", role=Role.DIM, mark=" ", lines=("Connecting: nothing is known yet.",)
)


def verdict(view: View) -> Verdict:
    """The verdict on the worst tenant; trouble of the engine comes first."""
    state = view.state
    engine = state.engine
    if state.connection.link is Link.CONNECTING:
        return CONNECTING
    if state.connection.link is not Link.LIVE:
        return Verdict(short="no news from the daemon", role=Role.BAD, mark="!")
    waiting = _waiting_text(state)
    if engine is not None and engine.state in ("down", "starting"):
        since = formats.moment(engine.since, view.daemon_now, view.zone)
        text = f"the engine is {engine.state} since {since}"
        said = f"{_upper(text)}{': ' + printable(engine.reason) if engine.reason else ''}."
        return Verdict(short=text, role=Role.BAD, mark="!!", lines=(said, waiting))
    if state.tenants is None:
        return CONNECTING  # it is told within a second
    loads = worst_first(state.tenants.tenants)
    incidents = state.tenants.incidents
    going_on = [one for one in incidents if one.state == "open"]
    if going_on:
        return _going_on(going_on, view)
    over = [one for one in incidents if one.state == "over"]
    # What was missed stays in five minutes' shares for as long.
    missing = [load for load in loads if is_missing(load) and not is_over(load.tenant, over)]
    if missing:
        return _missing(missing, view)
    if over:
        return _over(over, waiting, view)
    busy = [load for load in loads if load.verdict == "met"]
    if not busy:
        return Verdict(short="no traffic", role=Role.DIM, mark=" ", lines=("No traffic to judge.", waiting))
    names = in_text(busy[0].tenant) if len(busy) == 1 else f"all {len(busy)} tenants with traffic"
    text = f"{names} {'meets' if len(busy) == 1 else 'meet'} the targets"
    closest = max(busy, key=worst_burn)
    met, promised = (formats.percent(share, 1) for share in (met_ratio(closest), closest.target_ratio))
    near = f"Closest to its limit: {in_text(closest.tenant)}, {met} kept of {promised} promised."
    return Verdict(short=text, role=Role.GOOD, mark="+", lines=(f"{_upper(text)}.", near, waiting))


def _going_on(open_: Sequence[IncidentEvent], view: View) -> Verdict:
    first, state = open_[0], view.state
    at = formats.moment(first.began_at, view.daemon_now, view.zone)
    ago = "" if view.daemon_now is None else f" ({formats.duration(lasted_s(first, view.daemon_now))})"
    loads = state.tenants.tenants if state.tenants is not None else ()
    load = next((one for one in loads if one.tenant == first.tenant), None)
    what, late = missed_in_words(first), load.late_now if load is not None else 0
    name = in_text(first.tenant)
    aims = " and ".join(_target_text(first.tenant, one.target, state) for one in first.targets)
    omitted = state.tenants.incidents_omitted if state.tenants is not None else 0
    also = also_in_words([in_text(one.tenant) for one in open_[1:]], omitted)
    queue = f"; {_queue_text(load)}" if load is not None and late else ""
    return Verdict(
        short=f"{clip(first.tenant, _SHORT_NAME_WIDTH)} misses {what} since {at}"
        f"{f', {formats.count(late)} late' if late else ''}",
        role=Role.BAD,
        mark="!",
        lines=(
            f"{name} misses {aims or what} since {at}{ago}{also}.",
            f"{printable(harm_in_words(first))}{queue}.",
            f"Likely cause: {printable(first.text)}.",
            f"What would help: {printable(help_in_words(first))}" if first.command else "",
        ),
    )


def _over(over: Sequence[IncidentEvent], waiting: str, view: View) -> Verdict:
    first, now = over[0], view.daemon_now
    began, ended = (
        formats.moment(at, now, view.zone) for at in (first.began_at, first.over_at or first.last_missed_at)
    )
    clean = "" if now is None else f", over for {formats.duration(clean_s(first, now))}"
    name, also = (
        in_text(first.tenant),
        also_in_words([in_text(one.tenant) for one in over[1:]], 0, verb="did"),
    )
    return Verdict(
        short=f"{clip(first.tenant, _SHORT_NAME_WIDTH)}: over since {ended}",
        role=Role.WARN,
        mark="+",
        lines=(
            f"{name} missed {missed_in_words(first)} from {began} to {ended}{clean}{also}.",
            f"{printable(harm_in_words(first))}. Likely cause: {printable(first.text)}.",
            waiting,
        ),
    )


def _queue_text(load: TenantLoad) -> str:
    return (
        f"{formats.count(load.late_now)} of {formats.count(load.waiting)} waiting late, "
        f"oldest {formats.duration(load.oldest_wait_ms / 1000)}"
    )


def _missing(missing: Sequence[TenantLoad], view: View) -> Verdict:
    first, state = missing[0], view.state
    name = in_text(first.tenant)
    targets = targets_missed(first) or ["ttft"]
    what = " and ".join(LABELS[target] for target in targets)
    since = missing_since(first.tenant, state)
    at = formats.moment(since, view.daemon_now, view.zone)
    ago = ""
    if since is not None and view.daemon_now is not None:
        ago = f" ({formats.duration(max(0.0, (view.daemon_now - since).total_seconds()))})"
    and_others = also_in_words([in_text(load.tenant) for load in missing[1:]], 0)
    late = f", {formats.count(first.late_now)} late" if first.late_now else ""
    share = (
        f"{formats.percent(met_ratio(first), 1)} of 5 min kept, "
        f"{formats.percent(first.target_ratio, 1)} promised"
    )
    queue = f"; {_queue_text(first)}" if first.late_now else ""
    unserved = unserved_in_words(first) if "availability" in targets else ""
    aims = " and ".join(_target_text(first.tenant, target, state) for target in targets)
    return Verdict(
        short=f"{clip(first.tenant, _SHORT_NAME_WIDTH)} misses {what} since {at}{late}",
        role=Role.BAD,
        mark="!",
        lines=(
            f"{name} misses {aims} since {at}{ago}{and_others}.",
            f"{share}{queue}{'; ' if unserved else ''}{unserved}.",
            f"Likely cause: {likely_cause(first, targets[0], view)}.",
        ),
    )


def _target_text(tenant: str, target: str, state: ConsoleState) -> str:
    """The target with its figures, as far as known."""
    listed = known(state.answers.tenants) or ()
    slo = next((one.slo for one in listed if one.name == tenant), None)
    if slo is None or target == "availability":
        return LABELS[target]
    if target == "tbt":
        return f"TBT of {formats.plain(slo.tbt_ms)} ms"
    if target == "e2e":
        within = "" if slo.e2e_ms is None else f" of {formats.plain(slo.e2e_ms)} ms"
        return f"its target for whole answers{within}"
    fixed, per_1k = formats.plain(slo.ttft_fixed_ms), formats.plain(slo.ttft_per_1k_new_tokens_ms)
    return f"TTFT of {fixed} ms + {per_1k} per 1K tokens"


def missing_since(tenant: str, state: ConsoleState) -> datetime | None:
    """When it began: the oldest alarm of the tenant, else when this console saw it first."""
    begun = [
        alarm.since or alarm.at
        for alarm in state.alarms.values()
        if alarm.tenant == tenant and alarm.kind in TARGET_ALARMS
    ]
    seen = state.pasts.of(tenant).missing_since
    return min([*begun, *([seen] if seen is not None else [])], default=None)


def likely_cause(load: TenantLoad, target: str, view: View, cause: str | None = None) -> str:
    """The cause in words, with who stands before it where it waits; the most frequent cause if none is
    given."""
    state = view.state
    now = view.daemon_now
    if cause is None:
        counted = state.pasts.of(load.tenant).causes(target, now.timestamp() if now is not None else 0.0)
        cause = counted.most_common(1)[0][0] if counted else "queued" if load.late_now else "unknown"
    if target == "ttft" and cause == "queued":
        return _queued(load, view)
    if target == "ttft" and cause == "prefill_slow":
        strictest = state.stats.strictest_tbt if state.stats is not None else None
        if strictest is None:
            return CAUSES[cause]
        aim = f"{in_text(strictest.tenant)}'s TBT target of {strictest.tbt_ms:g} ms"
        return f"{CAUSES[cause]}; decode gets the SMs that {aim} asks for"
    return cause_in_words(cause)


def _queued(load: TenantLoad, view: View) -> str:
    state = view.state
    now = view.daemon_now
    computed = state.pasts.prompt_shares(now.timestamp()) if now is not None else {}
    others = {tenant: share for tenant, share in computed.items() if tenant != load.tenant}
    loads = state.tenants.tenants if state.tenants is not None else ()
    queue = {one.tenant: one.waiting or 0 for one in loads if one.tenant != load.tenant}
    if others and max(others.values()) >= MUCH:
        first = max(others, key=lambda name: others[name])
        return (
            f"queued behind {in_text(first)}, with {formats.percent(others[first])} of the prompt tokens "
            f"of the last minute"
        )
    all_waiting = sum(queue.values()) + (load.waiting or 0)
    if queue and all_waiting and max(queue.values()) >= MUCH * all_waiting:
        first = max(queue, key=lambda name: queue[name])
        return f"queued behind {in_text(first)}, with {queue[first]} of the {all_waiting} that wait"
    return "queued behind its own requests, more than the GPU serves"


def _waiting_text(state: ConsoleState) -> str:
    stats = state.stats
    if stats is None:
        return ""
    total = stats.waiting if stats.waiting_total is None else stats.waiting_total
    if not total:
        return "Nothing waits."
    late = f", {formats.count(stats.late_now)} of them late" if stats.late_now else ", none of them late"
    return f"{formats.count(total)} wait in all{late if stats.late_now is not None else ''}."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
