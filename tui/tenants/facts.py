"""A tenant's targets and how they were met."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.tenants.tenant import facts
from pdmuxd.tui.state.view import View


class TenantFacts(Painting):
    """See `facts`."""

    DEFAULT_CSS = "TenantFacts { height: 8; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_of_tenant = name

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return facts(self._name_of_tenant, view, width, height)
