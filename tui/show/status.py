"""The two lines on top: the screens' tabs, and how daemon, engine and this console are."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.tui.client.connection import Link
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Line, Run, fit, length, spread
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.verdict import verdict
from pdmuxd.tui.state.lag import LATE_S
from pdmuxd.tui.state.view import View


@dataclass(frozen=True, slots=True)
class Tab:
    """A screen, by its key."""

    key: str
    name: str
    label: str


TABS = (
    Tab("1", "overview", "Overview"),
    Tab("2", "tenants", "Tenants"),
    Tab("3", "partitions", "Partitions"),
    Tab("4", "guard", "Guard"),
    Tab("5", "decisions", "Decisions"),
    Tab("6", "engine", "Engine"),
)
LIVE_MARK, DEAD_MARK = "●", "○"


def tabs(current: str, width: int) -> Line:
    """All screens with their keys; the open one stands out, in brackets where there is no colour."""
    runs: list[Run] = []
    for tab in TABS:
        if tab.name == current:
            runs.append((f"[{tab.key} {tab.label}]", Role.TAB))
        else:
            runs += [(f" {tab.key}", Role.KEY), (f" {tab.label} ", Role.PLAIN)]
    return spread(tuple(runs), (("pdmuxd top", Role.DIM),), width)


def tab_at(column: int, current: str) -> str | None:
    """The screen whose tab covers a column."""
    left = 0
    for tab in TABS:
        left += length(((f" {tab.key} {tab.label} ", Role.PLAIN),))
        if column < left:
            return tab.name if tab.name != current else None
    return None


def status(view: View, width: int) -> Line:
    """The engine's state, the alarms, the verdict in words on the left; lag, loss and role on the right."""
    state, right = view.state, []
    is_live = state.connection.link is Link.LIVE
    engine = state.engine
    what = engine.state if is_live and engine is not None else str(state.connection.link)
    role = Role.GOOD if what == "serving" else Role.WARN if is_live else Role.BAD
    left: list[Line] = [((f"{LIVE_MARK if is_live else DEAD_MARK} {what}", role),)]
    if state.alarms:
        is_critical = any(alarm.severity == "critical" for alarm in state.alarms.values())
        count = len(state.alarms)
        text = f" {'!!' if is_critical else '!'} {count} alarm{'s' if count > 1 else ''} "
        left.append(((" ", Role.PLAIN), (text, Role.ALERT if is_critical else Role.NOTICE)))
    if is_live:
        found = verdict(view)
        left.append((("  ", Role.PLAIN), (f"{found.mark} {found.short}".strip(), found.role)))
    if state.hello is not None and view.console_version and state.hello.version != view.console_version:
        other = f"  pdmuxd {state.hello.version} (console {view.console_version})"
        left.append(((other, Role.WARN),))
    if state.policy:
        left.append((("  policy ", Role.DIM), (state.policy, Role.PLAIN)))
    if view.behind_s > LATE_S:
        right.append(
            (f"LAG {formats.duration(view.behind_s)}, {view.frames_dropped} frames left out ", Role.WARN)
        )
    if state.lost:
        right.append((f"{formats.count(state.lost)} events lost ", Role.WARN))
    if state.role == "reader":
        right.append(("READ-ONLY ", Role.WARN))
    if state.stats is not None:
        right.append((formats.clock(state.stats.at, view.zone), Role.DIM))
    if right:
        right.insert(0, (" ", Role.PLAIN))
    # What has no room is left out whole, the least telling first; the verdict is cut rather than left out.
    while len(left) > 3 and length(_joined(left)) + length(tuple(right)) > width:
        left.pop()
    return fit(spread(_joined(left), tuple(right), width), width)


def _joined(parts: list[Line]) -> Line:
    return tuple(run for part in parts for run in part)
