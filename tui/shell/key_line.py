"""The last line of a screen: its keys."""

from __future__ import annotations

from textual.screen import Screen
from textual.widgets import Footer


class KeyLine(Footer):
    """Textual's own, made anew only where it would say something else.

    Textual makes all of its keys anew at every change of the focus: a fifth of a core's time in the tests of
    typing.
    """

    _shown: object = None

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Make it anew if other keys can be pressed than those it shows."""
        keys = [
            (binding, is_enabled, tooltip)
            for _node, binding, is_enabled, tooltip in screen.active_bindings.values()
            if binding.show
        ]
        if keys == self._shown or not (screen.app.app_focus and self.is_attached and screen is self.screen):
            return
        self._shown = keys
        super().bindings_changed(screen)
