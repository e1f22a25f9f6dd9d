"""Requests: as rows, and one's life as a timeline."""

from __future__ import annotations

from datetime import datetime, tzinfo

from pdmuxd.tui.client.wire import RequestLifecycle
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column, Line, line, wrap
from pdmuxd.tui.show.roles import Role

COLUMNS = (
    Column("ended", 8),
    Column("tokens", 11, "right"),
    Column("TTFT/target", 13, "right"),
    Column("gap/target", 11, "right"),
    Column("missed", 0),
)
WORDS = {
    "arrived": "arrived at the gateway",
    "prefill_started": "prefill began",
    "first_token": "first token",
    "ended": "ended",
}
TRACK_WIDTH = 30


def cells(one: RequestLifecycle, now: datetime | None, zone: tzinfo | None) -> list[Cell]:
    """A row of COLUMNS."""
    missed = {miss.target for miss in one.missed}
    return [
        Cell(formats.moment(one.ended_at, now, zone), Role.DIM),
        Cell(f"{formats.count(one.new_tokens)}→{formats.count(one.output_tokens)}"),
        Cell(_against(one.ttft_ms, one.ttft_target_ms), Role.BAD if "ttft" in missed else Role.PLAIN),
        Cell(_against(one.tbt_max_ms, one.tbt_target_ms), Role.BAD if "tbt" in missed else Role.PLAIN),
        Cell(formats.printable("; ".join(miss.text or miss.cause for miss in one.missed)) or outcome(one)),
    ]


def outcome(one: RequestLifecycle) -> str:
    """How it ended."""
    return one.outcome or one.state.replace("_", " ")


def timeline(one: RequestLifecycle, width: int, zone: tzinfo | None) -> list[Line]:
    """The life of a request: who and what, each instant on a track, targets, what was missed and why."""
    end_ms = max([moment.at_ms for moment in one.timeline] or [0.0])
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
    for moment in one.timeline:
        at = 0 if end_ms <= 0 else round((TRACK_WIDTH - 1) * moment.at_ms / end_ms)
        track = ("─" * at + "●").ljust(TRACK_WIDTH)
        said = WORDS.get(moment.what, moment.what.replace("_", " "))
        lines.append(line((track, Role.RULE), f" {formats.ms(moment.at_ms):>6} ms  ", (said, Role.PLAIN)))
    lines += [
        (),
        line(
            f"queued {formats.ms(one.queue_ms)} ms, prefill {formats.ms(one.prefill_ms)} ms, "
            f"TTFT {_against(one.ttft_ms, one.ttft_target_ms)} ms, "
            f"longest gap {_against(one.tbt_max_ms, one.tbt_target_ms)} ms, "
            f"{formats.count(one.tbt_gaps_met)} of {formats.count(one.tbt_gaps)} gaps in time"
        ),
    ]
    if one.retractions:
        lines.append(line((f"taken back {one.retractions} times for want of KV memory", Role.WARN)))
    for miss in one.missed:
        text = f"! missed {miss.target.upper()}: {formats.printable(miss.text or miss.cause)}"
        lines += wrap(text, width, Role.BAD)
    if not one.missed and one.state == "ended" and one.outcome == "finished":
        lines.append(line(("+ both targets met", Role.GOOD)))
    return lines + _decisions(one)


def _decisions(one: RequestLifecycle) -> list[Line]:
    found = one.decisions or {}
    reasons = found.get("by_reason")
    if not isinstance(reasons, dict) or not reasons:
        return []
    listed = ", ".join(
        f"{reason} {times}" for reason, times in sorted(reasons.items(), key=lambda kv: -kv[1])
    )
    return [line(("decisions meanwhile: ", Role.DIM), formats.printable(listed))]


def _against(value: float | None, target: float | None) -> str:
    return f"{formats.ms(value)}/{formats.ms(target)}"
