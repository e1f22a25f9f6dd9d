"""The console: one state, fed by the event stream, painted at most ten times a second."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from pdmuxd.tui.client.connection import Connection, Link
from pdmuxd.tui.client.rest import RestClient
from pdmuxd.tui.client.stream import EventStream
from pdmuxd.tui.client.target import Target
from pdmuxd.tui.client.wire import Event
from pdmuxd.tui.overview.screen import OverviewScreen
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.shell.styles import theme_of
from pdmuxd.tui.shell.table import RowTable
from pdmuxd.tui.shell.typed import Typed
from pdmuxd.tui.show.palette import DARK, LIGHT, MONO, PALETTES
from pdmuxd.tui.show.status import TABS
from pdmuxd.tui.state.console import ConsoleState
from pdmuxd.tui.state.lag import INTERVAL_S, FramePacer
from pdmuxd.tui.state.spans import SPANS, after
from pdmuxd.tui.state.view import View

WHOLE_EVERY = 5
"""Every so many frames all panels are painted: twice a second."""


def later(module: str, name: str) -> Callable[[], Screen[Any]]:
    """A screen that is imported only when it is opened, so that the first screen does not wait for it."""

    def made() -> Screen[Any]:
        screen: Screen[Any] = getattr(import_module(module), name)()
        return screen

    return made


class ConsoleApp(App[None]):
    """The shell of all screens. Keys open them, `paint` is called by a timer."""

    TITLE = "pdmuxd top"
    ENABLE_COMMAND_PALETTE = False
    DEFAULT_MODE = "overview"
    MODES: ClassVar[dict[str, Any]] = {
        "overview": OverviewScreen,
        "tenants": later("pdmuxd.tui.tenants.screen", "TenantsScreen"),
        "partitions": later("pdmuxd.tui.partitions.screen", "PartitionsScreen"),
        "guard": later("pdmuxd.tui.guard.screen", "GuardScreen"),
        "decisions": later("pdmuxd.tui.decisions.screen", "DecisionsScreen"),
        "engine": later("pdmuxd.tui.engine.screen", "EngineScreen"),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(tab.key, f"open('{tab.name}')", tab.label, show=False) for tab in TABS),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("colon,ctrl+p", "jump", "Jump", key_display=":"),
        Binding("exclamation_mark", "alarms", "Alarms", key_display="!"),
        Binding("A", "admin", "Change tenants, keys, profiles, policy", show=False),
        Binding("h", "span", "5 min, 30 min or 24 h in charts", show=False),
        Binding("z", "zoom", "Zoom a panel", show=False),
        Binding("escape", "unzoom", show=False),
        Binding("t", "theme", "Theme", show=False),
        Binding("r", "retry", "Reconnect", show=False),
        Binding("q", "quit", "Quit"),
    ]
    CSS = """
    ConsoleScreen { background: $background; color: $foreground; }
    Footer { background: $background; }
    """

    def __init__(self, target: Target, *, is_light: bool = False) -> None:
        # With the terminal's own colours the library leaves none for NO_COLOR; with its own it leaves greys.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.target = target
        self.state = ConsoleState()
        self.rest = RestClient(target)
        self.stream = EventStream(
            self.rest.api, target.clock, on_event=self._on_event, on_connection=self._on_connection
        )
        self.pacer = FramePacer()
        self.typed = Typed(self)
        self._painted: tuple[int, int, Screen[Any] | None] | None = None
        self.span = SPANS[0]
        self._whole_at = 0
        self._owes_whole = False
        for palette in PALETTES.values():
            self.register_theme(theme_of(palette))
        self.theme = (MONO if self.no_color else LIGHT if is_light else DARK).name

    async def on_mount(self) -> None:
        self.set_interval(INTERVAL_S, self._tick)

    async def on_event(self, event: events.Event) -> None:
        """Called by the library for every event. Keys take a way of their own, past its queue."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.typed.add(event)
        else:
            await super().on_event(event)

    def on_ready(self) -> None:
        """The first screen can be painted now. Only then is imported what is needed for listening."""
        self.paint()
        self.call_after_refresh(self._listen)

    def _listen(self) -> None:
        """Follow the daemon, and look for garbage again, if whoever started this has put it off."""
        self.run_worker(self.stream.run(), group="stream", exclusive=True)
        gc.enable()

    async def on_unmount(self) -> None:
        """Close every connection."""
        await self.rest.close()

    @property
    def view(self) -> View:
        return self._view(is_whole=True)

    def _view(self, *, is_whole: bool) -> View:
        now_s = self.target.clock.monotonic_s()
        return View(
            state=self.state,
            now_s=now_s,
            url=self.target.url,
            console_version=self.target.console_version,
            zone=self.target.clock.zone,
            letters=PALETTES[self.theme].letters,
            span=self.span,
            behind_s=self.state.delay.behind_s + self.pacer.late_s,
            frames_dropped=self.pacer.dropped,
            is_whole=is_whole,
        )

    def paint(self, *, is_whole: bool = True) -> None:
        """Show the present state on the screen in front, and on what a dialog leaves visible of it."""
        view = self._view(is_whole=is_whole)
        for screen in self.screen_stack[-2:]:
            if isinstance(screen, ConsoleScreen) and screen.is_mounted:
                screen.paint(view)

    def action_open(self, name: str) -> None:
        """Bring a screen to the front."""
        if name in self.MODES and self.screen.is_modal is False:
            self.switch_mode(name)

    def action_theme(self) -> None:
        """Change between dark and light. Without colour there is only one theme."""
        if not self.no_color:
            self.theme = (LIGHT if self.theme == DARK.name else DARK).name

    def action_help(self) -> None:
        """Explain the screen in front."""
        from pdmuxd.tui.shell.help import Help

        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(Help(self.screen.NAME, self.screen.HELP_TEXT, self.screen.keys()))

    def action_jump(self) -> None:
        """Jump to a screen, a tenant or an action."""
        from pdmuxd.tui.shell.jump import Jump
        from pdmuxd.tui.show.jump import places

        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(Jump(places(self.state)), self._jumped)

    async def _jumped(self, action: str | None) -> None:
        if action is not None:
            await self.run_action(action)

    def action_alarms(self) -> None:
        """List all alarms, with beginning and end."""
        from pdmuxd.tui.shell.alarms import AlarmList

        if isinstance(self.screen, ConsoleScreen):
            self.push_screen(AlarmList(self.view, self.rest))

    def action_admin(self) -> None:
        """Change tenants, keys, profiles and the policy. Each change is confirmed."""
        from pdmuxd.tui.shell.admin import Admin

        if isinstance(self.screen, ConsoleScreen) and self.screen.why_no_change() is None:
            self.push_screen(Admin(self.rest))

    def action_span(self) -> None:
        """Let charts show the next span of time."""
        self.span = after(self.span)
        self._ask()
        self.paint()

    def action_zoom(self) -> None:
        """The next panel takes the whole screen; after the last one all are back, as after Escape."""
        if isinstance(self.screen, ConsoleScreen):
            self.screen.zoom()

    def action_unzoom(self) -> None:
        """Show all panels again."""
        self.screen.minimize()

    def action_csv(self) -> None:
        """Write the table of the screen in front as CSV."""
        for table in self.screen.query(RowTable):
            table.action_csv()
            return
        self.notify("this screen has no table", severity="warning")

    def action_tenant(self, name: str) -> None:
        from pdmuxd.tui.tenants.tenant import TenantScreen

        self.push_screen(TenantScreen(name))

    def action_edit(self, name: str) -> None:
        """Open one tenant and edit its targets."""
        from pdmuxd.tui.tenants.tenant import TenantScreen

        screen = TenantScreen(name)
        self.push_screen(screen)
        self.call_later(screen.action_edit)

    async def action_engine(self, name: str) -> None:
        await self.switch_mode("engine")
        self.call_later(self.run_action, f"screen.engine('{name}')")

    def action_retry(self) -> None:
        self.stream.retry()

    def _on_event(self, event: Event) -> None:
        self.state.apply(event, self.target.clock.monotonic_s())

    def _on_connection(self, connection: Connection) -> None:
        was_live = self.state.connection.link is Link.LIVE
        self.state.connected(connection)
        if connection.link is Link.LIVE and not was_live:
            # What events do not carry is not to be missing for a whole period.
            self.call_later(self._ask)

    def _ask(self) -> None:
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, ConsoleScreen):
            screen.poll()

    def _tick(self) -> None:
        """Paint if there is anything new, and once a second, since ages grow."""
        now_s = self.target.clock.monotonic_s()
        stack = self.screen_stack
        # There is none for a moment while another mode begins, and when the console ends.
        if not stack or not self.pacer.tick(self.target.clock.frame_s()):
            return
        shown = (self.state.revision, int(now_s), stack[-1])
        is_whole = self.pacer.painted - self._whole_at >= WHOLE_EVERY
        if shown != self._painted or (is_whole and self._owes_whole):
            self._painted = shown
            # A state that comes and stays is on every panel in the end, also on those painted less often.
            self._whole_at = self.pacer.painted if is_whole else self._whole_at
            self._owes_whole = not is_whole
            self.paint(is_whole=is_whole)
