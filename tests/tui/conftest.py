"""The console on a daemon without sockets, driven by key presses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import scenes
import textual._wait
from console_daemon import ConsoleDaemon
from textual import events
from textual.css.stylesheet import Stylesheet
from textual.keys import _character_to_key

from pdmuxd.tui.app import ConsoleApp

FOLDER = Path(__file__).parent / "screens"
ASKING = ("fetch", "what-if", "action", "request", "work", "default")
UPDATE = "PDMUXD_UPDATE_SCREENS"

# After every key Textual waits until the process has been idle for so long, by default 20 ms. Most of the
# time of these tests was that; what they need to see they wait for in any case (`Terminal.settle`).
textual._wait.SLEEP_GRANULARITY = 0.004
textual._wait.SLEEP_IDLE = textual._wait.SLEEP_GRANULARITY / 3

_parsed: dict[Any, Any] = {}
_parse_rules = Stylesheet._parse_rules


def _parse_rules_once(sheet: Stylesheet, css: str, **where: Any) -> Any:
    """The rules of a piece of CSS, parsed once for all consoles that have the same variables."""
    key = (css, *where.items(), *sheet._variables.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(sheet, css, **where)
    return _parsed[key]


Stylesheet._parse_rules = _parse_rules_once  # type: ignore[method-assign]


class Terminal:
    """A console in a terminal of a given size."""

    def __init__(self, app: ConsoleApp, pilot: Any, daemon: ConsoleDaemon) -> None:
        self.app = app
        self.pilot = pilot
        self.daemon = daemon

    @property
    def text(self) -> str:
        """What is on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"

    @property
    def words(self) -> str:
        """The same as running text, wherever it is wrapped."""
        return " ".join(self.text.replace("│", " ").split())

    @property
    def has_colour(self) -> bool:
        """Whether anything on the screen asks for a colour."""
        strips = self.app.screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        return any(
            colour is not None and not colour.is_default
            for style in styles
            for colour in (style.color, style.bgcolor)
        )

    def styles(self, row: int) -> list[str]:
        """The backgrounds of a row, from left to right."""
        strip = self.app.screen._compositor.render_strips()[row]
        return [segment.style.bgcolor.name for segment in strip if segment.style and segment.style.bgcolor]

    async def press(self, *keys: str) -> None:
        first, *more = keys
        await self.pilot.press(first)
        if more:
            # What a screen asks for when it opens is there before the next key means anything.
            await self.answered()
            await self.pilot.press(*more)
        await self.settle()

    async def press_at_once(self, *keys: str) -> None:
        """Keys that the terminal hands over together, as a slow line does."""
        for key in keys:
            is_character = len(key) == 1
            name = _character_to_key(key) if is_character else key
            self.app.post_message(events.Key(name, key if is_character else None))
        await self.settle()

    async def paste(self, text: str, *keys: str) -> None:
        """What the terminal says is pasted, and keys right behind it."""
        self.app.post_message(events.Paste(text))
        await self.press_at_once(*keys)

    async def type(self, text: str) -> None:
        await self.press(*text)

    async def settle(self) -> None:
        """Until all that was sent is taken in, answered and painted."""
        await self.until(lambda: self.app.state.connection.link != "live" or self._is_all_read())
        for _ in range(3):
            await self.pilot.pause()
        self.app.paint()
        await self.pilot.pause()

    async def answered(self) -> None:
        """Until nothing is being asked, and that is painted."""
        await self.until(lambda: not any(worker.group in ASKING for worker in self.app.workers))
        await self.settle()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for what only looking can tell."""
        async with asyncio.timeout(60):
            while not condition():
                await self.pilot.pause(0.01)

    async def until_shown(self, text: str) -> None:
        def is_shown() -> bool:
            self.app.paint()
            return text in self.text or text in self.words

        await self.until(is_shown)

    def _is_all_read(self) -> bool:
        return self.app.state.events >= self.daemon.sent + self.daemon.streams


@pytest.fixture
def daemon() -> ConsoleDaemon:
    return ConsoleDaemon()


@pytest.fixture
def busy(daemon: ConsoleDaemon) -> ConsoleDaemon:
    """A daemon that has just said everything once."""
    daemon.send("stats", scenes.stats())
    daemon.send("tenants", scenes.tenants())
    for number in range(30):
        daemon.send("decision", scenes.decision(number, number / 10))
    daemon.send("request", scenes.request_life())
    daemon.send("alarm", scenes.alarm())
    return daemon


Opener = Callable[..., AbstractAsyncContextManager[Terminal]]


@pytest.fixture
def console() -> Opener:
    """Open a console: `async with console(daemon, size=(80, 24)) as terminal`."""

    @asynccontextmanager
    async def opened(
        daemon: ConsoleDaemon, *, size: tuple[int, int] = (80, 24), is_light: bool = False, **target: Any
    ) -> AsyncIterator[Terminal]:
        app = ConsoleApp(daemon.target(**target), is_light=is_light)
        async with app.run_test(size=size, notifications=True) as pilot:
            terminal = Terminal(app, pilot, daemon)
            # It listens only once its first screen is there.
            await terminal.until(lambda: app.state.connection.link != "connecting")
            await terminal.settle()
            yield terminal

    return opened


@pytest.fixture
def matches(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a screen with the one that is kept; PDMUXD_UPDATE_SCREENS=1 keeps it anew."""

    def check(text: str, name: str = "", *, otherwise: str = "") -> None:
        name = name or request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")
        kept, other = FOLDER / f"{name}.txt", FOLDER / f"{otherwise}.txt"
        if os.environ.get(UPDATE):
            FOLDER.mkdir(exist_ok=True)
            # What is the same as another is kept once.
            if otherwise and other != kept and other.read_text() == text:
                kept.unlink(missing_ok=True)
            else:
                kept.write_text(text)
        if otherwise and not kept.exists():
            kept = other
        assert kept.exists(), f"no screen is kept; look at it, then run with {UPDATE}=1:\n{text}"
        assert text == kept.read_text()

    return check
