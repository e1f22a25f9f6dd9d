"""A screen or dialog that says when it is ready for keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar, cast

from textual.screen import Screen
from textual.widget import Widget

from pdmuxd.tui.shell.field import Field

T = TypeVar("T")


class TakesKeys(Protocol):
    """What holds back typed keys until a screen is ready."""

    async def go_on(self) -> None:
        """The screen in front takes keys now."""

    def forget(self) -> None:
        """Drop the keys that were held back: they mean nothing any more."""


class HoldsKeys(Protocol):
    """What a screen needs of the application."""

    typed: TakesKeys


class Front(Screen[T]):
    """What is typed before it is there, or while it does `work`, is held back and comes to it afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._is_open = False
        self._asked_for = 0

    @property
    def accepts_keys(self) -> bool:
        """Whether the widgets are there, one has the focus, and nothing is about to open."""
        return self._is_open and not self._asked_for

    def work(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Wait, while the screen goes on, for what has to be answered before the next key means anything."""
        self._asked_for += 1
        self.begin(partial(self._wait_for, ask), group="work")

    def begin(self, do: Callable[[], Awaitable[None]], *, group: str, exclusive: bool = False) -> None:
        """Do it beside everything else; `exclusive` in place of what has begun in the same group."""
        # A function and not its coroutine: one that is replaced before it has begun would complain.
        self.run_worker(cast("Callable[[], None]", do), group=group, exclusive=exclusive)

    async def _wait_for(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        finally:
            self._asked_for -= 1
            self._let_keys_on()

    def forget_typed(self) -> None:
        """Drop keys that were typed for something that does not open."""
        self._held.forget()

    @property
    def _held(self) -> TakesKeys:
        return cast("HoldsKeys", self.app).typed

    def set_focus(
        self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False
    ) -> None:
        """A field's text is selected when it gets the focus, so that what is typed next replaces it."""
        is_other = widget is not self.focused
        super().set_focus(widget, scroll_visible, from_app_focus)
        # Not when the whole terminal gets the focus back: somebody is in the midst of typing.
        if is_other and isinstance(widget, Field) and not from_app_focus:
            widget.select_all()

    def on_screen_resume(self) -> None:
        """Take the keys; the library gives the focus to a widget once this has returned."""
        self.call_next(self._open_to_keys)

    def _open_to_keys(self) -> None:
        self._is_open = True
        self._let_keys_on()

    def _let_keys_on(self) -> None:
        self.app.call_later(self._held.go_on)
