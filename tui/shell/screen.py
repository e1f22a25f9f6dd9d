"""What every screen has: tabs, status, banner, a body of its own, and its keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from typing import ClassVar, Protocol, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widget import Widget

from pdmuxd.tui.client.rest import RestClient
from pdmuxd.tui.client.target import Target
from pdmuxd.tui.shell.banner import Banner
from pdmuxd.tui.shell.front import Front
from pdmuxd.tui.shell.key_line import KeyLine
from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.shell.status_line import StatusLine
from pdmuxd.tui.shell.table import RowTable
from pdmuxd.tui.shell.tabs import Tabs
from pdmuxd.tui.state.console import ConsoleState
from pdmuxd.tui.state.view import View, why_no_change

NARROW, WIDE = "-narrow", "-wide"
SHORT, TALL = "-short", "-tall"
WIDE_COLUMNS = 160
TALL_ROWS = 40


class ConsoleLike(Protocol):
    """What screens need of the application."""

    state: ConsoleState
    rest: RestClient
    target: Target
    view: View


class ConsoleScreen(Front[None]):
    """Subclasses have a NAME, a body and HELP."""

    HORIZONTAL_BREAKPOINTS = [(0, NARROW), (WIDE_COLUMNS, WIDE)]  # noqa: RUF012 - the library declares it so
    VERTICAL_BREAKPOINTS = [(0, SHORT), (TALL_ROWS, TALL)]  # noqa: RUF012
    NAME: ClassVar[str] = ""
    POLL_S: ClassVar[float] = 2.0
    HELP_TEXT: ClassVar[str] = ""
    DEFAULT_CSS = """
    ConsoleScreen > #body { height: 1fr; }
    ConsoleScreen.-maximized-view { hatch: right $background; }
    ConsoleScreen.-maximized-view .-maximized {
        display: block !important; height: 1fr !important; width: 1fr !important;
        max-height: 100% !important; margin: 0 !important;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_fetching = False

    def compose(self) -> ComposeResult:
        """The frame around the body."""
        yield Tabs(self.NAME)
        yield StatusLine()
        yield Banner()
        with Vertical(id="body"):
            yield from self.body()
        yield KeyLine(show_command_palette=False, compact=True)

    def body(self) -> Iterable[Widget]:
        raise NotImplementedError

    def paint(self, view: View) -> None:
        for painting in self.query(Painting):
            painting.paint(view)

    def zoom(self) -> None:
        """Show the next panel on the whole screen; after the last one all panels."""
        panels = [one for one in self.query("#body Painting").results(Painting) if one.allow_maximize]
        before = self.maximized
        at = panels.index(before) + 1 if isinstance(before, Painting) and before in panels else 0
        if before is not None:
            self.minimize()
        if at < len(panels):
            self.maximize(panels[at], container=False)

    def keys(self) -> list[tuple[str, str]]:
        """The keys that do something on this screen, with what they do."""
        tables = [
            binding
            for table in list(self.query(RowTable))[:1]
            for binding in (*vars(type(table)).get("BINDINGS", ()), *RowTable.BINDINGS)
        ]
        seen: dict[str, str] = {}
        for binding in (*vars(type(self)).get("BINDINGS", ()), *tables, *type(self.app).BINDINGS):
            if isinstance(binding, Binding) and binding.description:
                seen.setdefault(binding.key_display or binding.key.replace(",", " "), binding.description)
        return list(seen.items())

    async def fetch(self) -> None:
        """Ask the read routes for what events do not carry; called while the screen is in front."""

    def on_mount(self) -> None:
        self.set_interval(self.POLL_S, self.poll)

    def on_screen_resume(self) -> None:
        self.poll()

    @property
    def console(self) -> ConsoleState:
        return cast("ConsoleLike", self.app).state

    @property
    def rest(self) -> RestClient:
        return cast("ConsoleLike", self.app).rest

    @property
    def view(self) -> View:
        return cast("ConsoleLike", self.app).view

    @property
    def zone(self) -> tzinfo | None:
        return cast("ConsoleLike", self.app).target.clock.zone

    def why_no_change(self) -> str | None:
        """Why nothing can be changed now; None if it can. The user is told too."""
        why = why_no_change(self.console)
        if why is not None:
            self.notify(why, title="No change was made", severity="warning", markup=False)
        return why

    def poll(self) -> None:
        """Ask now, unless an earlier answer has not come yet."""
        # A slow answer is waited for, not asked for again: over a slow tunnel it would never come.
        if self.is_current and not self._is_fetching and self.console.connection.link == "live":
            self._is_fetching = True
            self.begin(self._fetch, group="fetch")

    async def _fetch(self) -> None:
        try:
            await self.fetch()
        finally:
            self._is_fetching = False
            self.console.revision += 1
