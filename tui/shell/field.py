"""A line to type into that takes keys in the order in which they were typed."""

from __future__ import annotations

from textual import events
from textual.binding import NoBinding
from textual.widgets import Input


class Field(Input):
    """The library's, but for keys that edit.

    The library inserts a character at once, but lets a key that edits (Home, Backspace, Ctrl+K) first pass
    through every widget around the field: what is typed right behind it overtakes it, and is deleted by it.
    """

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable:
            return
        try:
            bindings = self._bindings.get_bindings_for_key(event.key)
        except NoBinding:
            return
        for binding in bindings:
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
