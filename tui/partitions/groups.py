"""The partition groups."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.partitions.groups import groups
from pdmuxd.tui.state.view import View


class Groups(Painting):
    """See `groups`."""

    DEFAULT_CSS = "Groups { height: 12; } .-tall Groups { height: 1fr; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return groups(view, width, height)
