"""The screens' tabs; a click opens one."""

from __future__ import annotations

from textual import events

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.status import tab_at, tabs
from pdmuxd.tui.state.view import View


class Tabs(Painting):
    """One line on top of every screen."""

    DEFAULT_CSS = "Tabs { height: 1; }"

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """Paint; the tabs do not depend on the state."""
        return [tabs(self._current, width)]

    async def on_click(self, event: events.Click) -> None:
        wanted = tab_at(event.x, self._current)
        if wanted is not None:
            await self.app.run_action(f"open('{wanted}')")
