"""The edits of a tenant's targets."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.tenants.tenant import history
from pdmuxd.tui.state.view import View


class SloHistory(Painting):
    """See `history`."""

    DEFAULT_CSS = "SloHistory { height: 5; } .-tall SloHistory { height: 12; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_of_tenant = name

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return history(self._name_of_tenant, view, width, height)
