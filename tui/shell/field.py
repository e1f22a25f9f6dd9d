"""A line to type into."""

from __future__ import annotations

from collections.abc import Callable

from textual.widgets import Input


class Field(Input):
    """The library's input field, but it calls functions. Messages would be overtaken by the next key."""

    def __init__(
        self,
        value: str = "",
        *,
        placeholder: str = "",
        entered: Callable[[str], None] | None = None,
        id: str | None = None,  # noqa: A002 - the library's name
    ) -> None:
        # The library selects all when a message tells the field of its focus: after the first keys.
        super().__init__(value, placeholder=placeholder, id=id, select_on_focus=False)
        self._entered = entered

    def put(self, text: str) -> None:
        """Type or paste one line."""
        self.replace(text, *self.selection)

    async def action_submit(self) -> None:
        if self._entered is not None:
            self._entered(self.value)
