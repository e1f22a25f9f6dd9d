"""The busiest tenants."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.tenants import tenants
from pdmuxd.tui.state.view import View


class BusiestTenants(Painting):
    """See `tenants`."""

    IS_SLOW = True
    DEFAULT_CSS = "BusiestTenants { height: 1fr; min-height: 4; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return tenants(view, width, height)
