"""The first line of a panel, which says how old its figures are when they are stale."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Line, title
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


def said(view: View, text: str) -> str:
    """`text` in place of figures, once the daemon has told of tenants; before that nothing is known."""
    return "connecting" if view.state.tenants is None else text


def heading(view: View, text: str, width: int, note: str = "") -> Line:
    """A title with its rule; staleness takes the place of the note."""
    stale_s = view.stale_s
    if stale_s is not None:
        return title(text, width, f"STALE {formats.duration(stale_s)}", Role.WARN)
    return title(text, width, note)
