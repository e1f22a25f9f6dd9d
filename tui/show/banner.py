"""The banner over all panels while something is wrong with the daemon or its engine."""

from __future__ import annotations

from pdmuxd.tui.client.connection import Connection, Link
from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Line, wrap
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

MOST_LINES = 3
SAID = {
    Link.CONNECTING: "Connecting to {url}",
    Link.AWAY: "No connection to {url}: {cause}",
    Link.REFUSED: "{url} refuses the token: {cause}",
    Link.MISMATCH: "{url} is of another version: {cause}",
    Link.FOREIGN: "{url}: {cause}",
}
ENGINE = {
    "starting": "The engine is starting",
    "draining": "The engine is draining: it finishes what it has and takes nothing new",
    "down": "The engine is down",
}


def banner(view: View, width: int) -> list[Line]:
    """The lines of the banner; none while all is well."""
    connection = view.state.connection
    if connection.link is not Link.LIVE:
        text = _connection_text(connection, view)
        return wrap(text, width, _role(connection))[:MOST_LINES]
    engine, stale_s = view.state.engine, view.stale_s
    if engine is not None and engine.state in ENGINE:
        reason = f": {printable(engine.reason)}" if engine.reason else ""
        held = "; 6, then u, resumes it" if engine.held else ""
        return wrap(f"{ENGINE[engine.state]}{reason}{held}.", width, Role.NOTICE)[:MOST_LINES]
    if stale_s is not None:
        return wrap(f"No figures for {formats.duration(stale_s)}.", width, Role.NOTICE)
    return []


def _connection_text(connection: Connection, view: View) -> str:
    text = SAID[connection.link].format(url=view.url, cause=connection.cause)
    if connection.retry_at_s is not None:
        left_s = max(0.0, connection.retry_at_s - view.now_s)
        text += f". Attempt {connection.failures + 1} in {left_s:.0f} s (r: now)"
    age_s = view.state.age_s(view.now_s)
    if age_s is not None:
        text += f". What is shown is {formats.duration(age_s)} old"
    return f"{text}."


def _role(connection: Connection) -> Role:
    return Role.NOTICE if connection.link is Link.CONNECTING else Role.ALERT
