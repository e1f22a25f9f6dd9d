"""The Engine screen: facts, actions, the end of the log."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.actions import ACTIONS
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View, why_no_change

LEVELS = (("error", Role.BAD), ("critical", Role.BAD), ("warn", Role.WARN))


def facts(view: View, width: int, height: int) -> list[Line]:
    """Lines for state, process, model and device."""
    engine = view.state.engine
    head = heading(view, "Engine", width)
    if engine is None:
        return [head, line(("none has said hello yet", Role.DIM))]
    role = Role.GOOD if engine.state == "serving" else Role.WARN
    reason = f": {printable(engine.reason)}" if engine.reason else ""
    held = " (held by an operator)" if engine.held else ""
    return [
        head,
        line(
            (f"{engine.state}{held}", role),
            (f" since {formats.moment(engine.since, view.daemon_now, view.zone)}", Role.DIM),
            (reason, role),
        ),
        line(
            ("model ", Role.DIM),
            printable(engine.model or formats.NONE),
            ("  on ", Role.DIM),
            printable(f"{engine.device or formats.NONE}, {formats.count(engine.total_sms)} SMs"),
            ("  profile ", Role.DIM),
            printable(engine.profile or formats.NONE),
            ("  policy ", Role.DIM),
            printable(view.state.policy or formats.NONE),
        ),
        line(
            (f"{engine.kind or 'engine'} ", Role.DIM),
            f"{engine.engine_version or formats.NONE}, pid {engine.pid or formats.NONE}, "
            f"{engine.restarts} restarts",
            ("  settings ", Role.DIM),
            f"{engine.acked_version} in force of {engine.wanted_version} wanted",
        ),
    ]


def progress(view: View, width: int, height: int) -> list[Line]:
    """A drain with live counts, a restart with its steps; what is in flight otherwise."""
    engine, stats = view.state.engine, view.state.stats
    head = heading(view, "In flight", width)
    if engine is None or stats is None:
        return [head, line(("nothing is known yet", Role.DIM))]
    counts = (
        f"{stats.in_flight or 0} at the gateway; in the engine {formats.count(stats.waiting)} waiting, "
        f"{formats.count(stats.prefilling)} in prefill, {formats.count(stats.running)} in decode"
    )
    steps = view.state.steps.lines()
    said = " → ".join(f"{name} {formats.duration(seconds)}" for name, seconds in steps[-5:])
    lines = [line(counts)]
    if engine.state == "draining" or engine.held:
        left = stats.in_flight or 0
        lines = [
            line(("+ safe now: nothing is in flight, the engine can be restarted or stopped", Role.GOOD))
            if not left and engine.state != "down"
            else line((f"draining: {left} left; {counts}", Role.WARN))
        ]
    lines.append(line(("steps  ", Role.DIM), (said or "no restart since this console began", Role.DIM)))
    return [head, *lines][:height]


def actions(view: View, width: int, height: int) -> list[Line]:
    """A line for each action; if actions are disabled, the reason."""
    why = why_no_change(view.state)
    head = heading(view, "Actions", width, f"disabled: {why}" if why else "")
    role = Role.DIM if why else Role.KEY
    return [
        head,
        *(
            line(
                (f"{action.key}  {action.name:<8}", role),
                (action.does, Role.DIM if why else Role.PLAIN),
                (" (asks for a name)" if action.is_dangerous else "", Role.DIM),
            )
            for action in ACTIONS
        ),
    ]


def found_lines(lines: Sequence[str], wanted: str) -> Sequence[str]:
    """Lines that hold what is searched for, in any case; all without a search."""
    lowered = wanted.strip().lower()
    return [text for text in lines if lowered in text.lower()] if lowered else lines


def log(view: View, back: int, width: int, height: int, wanted: str = "") -> list[Line]:
    """The last lines that hold what is `wanted`, `back` of them scrolled away."""
    answer = view.state.answers.log
    why, found = why_unknown(answer), known(answer)
    if why is not None or found is None:
        return [heading(view, "Engine log", width), line((why or "", Role.DIM))]
    lines = found_lines(found.lines, wanted)
    room = max(1, height - 1)
    end = max(min(room, len(lines)), len(lines) - back)
    note = printable(found.path or "there is none")
    if end < len(lines):
        note = f"{len(lines) - end} lines below"
    elif wanted:
        note = f"{len(lines)} of the last {len(found.lines)} lines hold {wanted!r}"
    shown = lines[max(0, end - room) : end]
    return [heading(view, "Engine log", width, note), *(_log_line(text) for text in shown)]


def _log_line(text: str) -> Line:
    lowered = text.lower()
    role = next((role for word, role in LEVELS if word in lowered), Role.PLAIN)
    return line((printable(text), role))
