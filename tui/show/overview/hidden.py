"""What a small terminal leaves out, said instead of left to be found out."""

from __future__ import annotations

from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

TEXT = "not shown: engine, tenants (2), decisions (5); all of it from 160×24 or 80×40"


def hidden(view: View, width: int, height: int) -> list[Line]:
    """One line."""
    return [line((TEXT, Role.DIM))]
