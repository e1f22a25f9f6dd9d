"""Alarms that are raised, the critical first."""

from __future__ import annotations

from pdmuxd.tui.client.wire import Alarm
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

MARKS = {"critical": ("!! ", Role.BAD), "warning": ("! ", Role.WARN)}


def alarms(view: View, width: int, height: int) -> list[Line]:
    """A line each, with the time since when; the last line says how many do not fit."""
    raised = sorted(view.state.alarms.values(), key=lambda one: (one.severity != "critical", one.id))
    head = heading(view, "Alarms", width, str(len(raised)) if raised else "")
    if not raised:
        return [head, line(("none", Role.DIM))]
    room = max(1, height - 1)
    shown = [_alarm(alarm, view) for alarm in raised[: room if len(raised) <= room else room - 1]]
    if len(shown) < len(raised):
        shown.append(line((f"and {len(raised) - len(shown)} more", Role.WARN)))
    return [head, *shown]


def _alarm(alarm: Alarm, view: View) -> Line:
    mark, role = MARKS.get(alarm.severity, ("! ", Role.WARN))
    since = formats.moment(alarm.since or alarm.at, view.daemon_now, view.zone)
    return line((mark, role), (f"{since} ", Role.DIM), (formats.printable(alarm.text or alarm.id), role))
