"""The banner that says what is wrong. It is as high as its text, and hidden while all is well."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.banner import banner
from pdmuxd.tui.show.lines import Line, fit
from pdmuxd.tui.state.view import View


class Banner(Painting):
    """The banner below the status line."""

    DEFAULT_CSS = "Banner { height: 0; }"

    def paint(self, view: View) -> None:
        """Paint, as high as the text needs."""
        needed = len(banner(view, max(1, self.screen.size.width)))
        if self.styles.height is None or self.styles.height.value != needed:
            self.styles.height = needed
        super().paint(view)

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The lines, coloured to the edge of the screen."""
        return [((fit(one, width)[0][0].ljust(width), one[0][1]),) for one in banner(view, width)]
