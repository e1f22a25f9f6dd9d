"""The latest changes, failures and recoveries, newest first."""

from __future__ import annotations

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

ROLES = {"alarm": Role.WARN, "engine": Role.WARN, "change": Role.PLAIN}


def lately(view: View, width: int, height: int) -> list[Line]:
    """A line for each; present alarms come first."""
    active = sorted(view.state.alarms.values(), key=lambda one: (one.severity != "critical", one.id))
    note = "! lists alarms" if active else ""
    head = heading(view, "Alarms, changes, restarts", width, note)
    lines = [
        line(
            ("!! " if alarm.severity == "critical" else "! ", Role.BAD),
            (f"{formats.moment(alarm.since or alarm.at, view.daemon_now, view.zone)} ", Role.DIM),
            (
                printable(alarm.text or alarm.id),
                Role.BAD if alarm.severity == "critical" else Role.WARN,
            ),
        )
        for alarm in active
    ]
    raised = {alarm.id for alarm in active}
    for mark in reversed(view.state.marks.kept):
        if mark.kind == "alarm" and mark.text.startswith("ALARM") and raised:
            continue
        at = formats.moment(mark.at, view.daemon_now, view.zone)
        lines.append(line(("  ", Role.DIM), (f"{at} ", Role.DIM), (printable(mark.text), ROLES[mark.kind])))
    return [head, *(lines or [line(("  nothing since this console began", Role.DIM))])][:height]
