"""Alarms with their beginning and end, those that are raised first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import PastAlarmsOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row, wrap
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

COLUMNS = (Column("", 2), Column("began", 8), Column("ended", 8), Column("lasted", 7, "right"), Column("", 0))


def alarm_lines(answer: PastAlarmsOut | Refusal | None, view: View, width: int) -> list[Line]:
    """A line for each alarm, with its text below where there is no room beside."""
    raised = sorted(view.state.alarms.values(), key=lambda one: (one.severity != "critical", one.id))
    lines = [row([Cell(column.heading, Role.DIM) for column in COLUMNS], COLUMNS, width)]
    for alarm in raised:
        lines += _rows(alarm.text or alarm.id, alarm.severity, alarm.since, None, view, width)
    if isinstance(answer, Refusal):
        return [*lines, line((answer.detail, Role.WARN))]
    for past in answer.alarms if answer is not None else ():
        if past.ended_at is not None:
            text = past.text + (" (until the daemon ended)" if past.ended_by == "restart" else "")
            lines += _rows(text, past.severity, past.began_at, past.ended_at, view, width)
    if len(lines) == 1:
        return [line(("no alarm is raised, and none is kept", Role.GOOD))]
    return lines


def _rows(
    text: str, severity: str, since: datetime | None, ended: datetime | None, view: View, width: int
) -> Sequence[Line]:
    role = Role.DIM if ended is not None else Role.BAD if severity == "critical" else Role.WARN
    until = ended or view.daemon_now
    lasted = (until - since).total_seconds() if until is not None and since is not None else None
    said = wrap(printable(text), max(8, width - 29), role) or [()]
    head = row(
        [
            Cell("" if ended else "!!" if severity == "critical" else "! ", role),
            Cell(formats.moment(since, view.daemon_now, view.zone), Role.DIM),
            Cell("raised" if ended is None else formats.moment(ended, view.daemon_now, view.zone), role),
            Cell(formats.NONE if lasted is None else formats.duration(max(0.0, lasted))),
        ],
        COLUMNS[:-1],
        28,
    )
    return [(*head, (" ", Role.PLAIN), *said[0]), *(((" " * 29, Role.PLAIN), *more) for more in said[1:])]
