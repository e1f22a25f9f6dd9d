"""Keys, in the order in which they were typed. Each key meets the screen as the earlier keys have left it."""

from __future__ import annotations

from collections import deque

from textual import events
from textual.app import App

from pdmuxd.tui.shell.field import Field
from pdmuxd.tui.shell.front import Front


class Typed:
    """Gives every key to the field that has the focus, or does what it is bound to.

    The library sends a key on its way through every widget around the one with the focus before it looks at
    what the key is bound to; meanwhile the next key sets out from the same widget, although the first one was
    to move the focus. Here a key is done with before the next one is looked at, and none is looked at before
    the screen that the last one opened is there.
    """

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._waiting: deque[events.Key | events.Paste] = deque()

    async def add(self, event: events.Key | events.Paste) -> None:
        """Take it in; a key with priority, such as the one that always quits, waits for nothing."""
        # Whoever types looks at this terminal, even if it has not said so.
        self._app.app_focus = True
        if isinstance(event, events.Key) and await self._run(event, is_urgent=True):
            return
        self._waiting.extend(self._as_typed(event))
        await self.go_on()

    async def go_on(self) -> None:
        """Hand on keys, while the screen in front is ready for them."""
        while self._waiting and self._is_ready:
            event = self._waiting.popleft()
            if isinstance(event, events.Paste):
                self._paste(event.text)
            else:
                await self._press(event)

    def forget(self) -> None:
        """Drop keys that were typed for a field that has not opened."""
        self._waiting.clear()

    def _as_typed(self, event: events.Key | events.Paste) -> list[events.Key | events.Paste]:
        """A terminal sends Escape and a letter as it sends Alt with that letter, bound to nothing."""
        if isinstance(event, events.Paste) or not event.key.startswith("alt+") or not event.character:
            return [event]
        return [events.Key("escape", None), events.Key(event.character, event.character)]

    @property
    def _is_ready(self) -> bool:
        stack = self._app.screen_stack
        return bool(stack) and (not isinstance(stack[-1], Front) or stack[-1].accepts_keys)

    async def _press(self, event: events.Key) -> None:
        focused = self._app.focused
        if isinstance(focused, Field) and event.character is not None and event.is_printable:
            focused.put(event.character)
        else:
            await self._run(event)

    def _paste(self, text: str) -> None:
        focused = self._app.focused
        if isinstance(focused, Field):
            focused.put(next(iter(text.splitlines()), ""))

    async def _run(self, event: events.Key, *, is_urgent: bool = False) -> bool:
        if not self._app.screen_stack:
            return False
        found = self._app.screen.active_bindings.get(event.key)
        if found is None or not found.enabled or (is_urgent and not found.binding.priority):
            return False
        return await self._app.run_action(found.binding.action, found.node)
