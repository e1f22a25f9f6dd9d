"""The SMs now."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.gpu import gpu
from pdmuxd.tui.state.view import View


class Gpu(Painting):
    """See `gpu`."""

    DEFAULT_CSS = "Gpu { height: 3; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return gpu(view, width, height)
