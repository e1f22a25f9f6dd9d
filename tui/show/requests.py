"""Requests: as rows, and one's life as a timeline."""

from __future__ import annotations

from datetime import datetime, tzinfo

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.wire import RequestEvent, RequestOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column, Line, line, wrap
from pdmuxd.tui.show.reasons import split_text
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state import seen
from pdmuxd.tui.state.tenants import excess_ratio

COLUMNS = (
    Column("ended", 8),
    Column("tokens", 11, "right"),
    Column("TTFT/target", 13, "right"),
    Column("gap/target", 11, "right"),
    Column("missed", 0),
)
DEADLINE = "deadline"
WORDS = {
    DEADLINE: "the first token was due",
    "arrived": "arrived at the gateway",
    "prefill_started": "prefill began",
    "first_token": "first token",
    "ended": "ended",
}
TRACK_WIDTH = 30
NEAR_RATIO = 0.05
"""Of a target: late by less is no alarm while as many are in time as was promised."""


def cells(
    one: RequestEvent, now: datetime | None, zone: tzinfo | None, *, is_met: bool = False
) -> list[Cell]:
    """A row of COLUMNS; `is_met` is whether its tenant meets its targets all the same."""
    roles = {miss.target: miss_role(one, miss.target, is_met=is_met) for miss in one.missed}
    return [
        Cell(formats.moment(one.ended_at, now, zone), Role.DIM),
        Cell(f"{formats.count(one.new_tokens)}→{formats.count(one.output_tokens)}"),
        Cell(_against(seen.ttft_ms(one), one.ttft_target_ms), roles.get("ttft", Role.PLAIN)),
        Cell(_against(seen.tbt_max_ms(one), one.tbt_target_ms), roles.get("tbt", Role.PLAIN)),
        Cell(printable("; ".join(miss.text or miss.cause for miss in one.missed)) or outcome(one)),
    ]


def miss_role(one: RequestEvent, target: str, *, is_met: bool) -> Role:
    """Red, unless it was late by little and the tenant gets what it was promised."""
    return Role.PLAIN if is_met and excess_ratio(one, target) <= NEAR_RATIO else Role.BAD


def outcome(one: RequestEvent) -> str:
    """How the request ended, in a word."""
    return one.outcome or one.state.replace("_", " ")


def timeline(one: RequestEvent, width: int, zone: tzinfo | None) -> list[Line]:
    """The life of a request: who and what, each instant on a track, targets, what was missed and why."""
    end_ms = max([moment.at_ms for moment in one.timeline] or [0.0])
    moments = [(moment.at_ms, moment.what) for moment in one.timeline]
    if one.ttft_target_ms is not None and one.timeline:
        # Of a first token: the sum of what its prompt was allowed, from the arrival on.
        moments = sorted([*moments, (one.ttft_target_ms, DEADLINE)])
        end_ms = max(end_ms, one.ttft_target_ms)
    head = f"{one.tenant}, {outcome(one)}, arrived {formats.instant(one.arrived_at, zone)}"
    status = f", HTTP {one.status}" if one.status is not None else ""
    lines = [
        line((one.request_id, Role.TITLE)),
        line(head + status),
        line(
            f"{formats.count(one.new_tokens)} new and {formats.count(one.reused_tokens)} cached tokens in, "
            f"{formats.count(one.output_tokens)} out"
        ),
        (),
    ]
    late = any(miss.target == "ttft" for miss in one.missed)
    for at_ms, what in moments:
        at = 0 if end_ms <= 0 else round((TRACK_WIDTH - 1) * at_ms / end_ms)
        is_deadline = what == DEADLINE
        track = ("─" * at + ("│" if is_deadline else "●")).ljust(TRACK_WIDTH)
        said = WORDS.get(what, what.replace("_", " "))
        role = Role.PLAIN if not is_deadline else Role.BAD if late else Role.GOOD
        lines.append(
            line((track, role if is_deadline else Role.RULE), f" {formats.ms(at_ms):>6} ms  ", (said, role))
        )
    whole = ""
    if one.e2e_target_ms is not None:
        whole = f", whole {_against(seen.e2e_ms(one), one.e2e_target_ms)} ms"
    lines += [
        (),
        line(
            f"queued {formats.ms(one.queue_ms)} ms, prefill {formats.ms(one.prefill_ms)} ms, "
            f"TTFT {_against(seen.ttft_ms(one), one.ttft_target_ms)} ms, "
            f"longest gap {_against(seen.tbt_max_ms(one), one.tbt_target_ms)} ms, "
            f"{_gaps_in_time(one)} of {formats.count(one.tbt_gaps)} gaps in time{whole}"
        ),
    ]
    if one.retractions:
        lines.append(line((f"taken back {one.retractions} times for want of KV memory", Role.WARN)))
    for miss in one.missed:
        text = f"! missed {miss.target.upper()}: {printable(miss.text or miss.cause)}"
        if miss.mode is not None:
            text += f"; mostly in {split_text(miss.mode, miss.prefill_sms or 0, miss.decode_sms or 0)}"
        lines += wrap(text, width, Role.BAD)
    if not one.missed and one.state == "ended" and one.outcome == "finished":
        lines.append(line(("+ all targets met", Role.GOOD)))
    return lines + _decisions(one)


def _decisions(one: RequestEvent) -> list[Line]:
    if not isinstance(one, RequestOut) or not one.decisions.by_reason:
        return []
    by_count = sorted(one.decisions.by_reason.items(), key=lambda kv: -kv[1])
    listed = ", ".join(f"{reason} {times}" for reason, times in by_count)
    return [line(("what ran meanwhile, decisions: ", Role.DIM), printable(listed))]


def _gaps_in_time(one: RequestEvent) -> str:
    return formats.count(None if one.tbt_gaps is None else max(0, one.tbt_gaps - seen.late_gaps(one)))


def _against(value: float | None, target: float | None) -> str:
    return f"{formats.ms(value)}/{formats.ms(target)}"
