"""The slider of a TBT target, and what the live predictors say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.partitions.slider import LABEL_WIDTH, Slider, slider, track_width
from pdmuxd.tui.show.partitions.what_if import what_if
from pdmuxd.tui.state.view import View

UNTIL_KNOWN_MS = 40.0


class Target(Painting, can_focus=True):
    """Moved by arrow keys or the mouse; changes nothing."""

    DEFAULT_CSS = "Target { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "slide(-1)", "-1 ms"),
        Binding("right", "slide(1)", "+1 ms"),
        Binding("shift+left,pagedown", "stride(-1)", "-10%", key_display="PgDn"),
        Binding("shift+right,pageup", "stride(1)", "+10%", key_display="PgUp"),
    ]

    @dataclass
    class Moved(Message):
        """The slider was moved to another target."""

        tbt_ms: float

    def __init__(self) -> None:
        super().__init__()
        self._slider: Slider | None = None

    @property
    def tbt_ms(self) -> float | None:
        """The target of the slider, ms; None before there is one to begin with."""
        return self._slider.tbt_ms if self._slider else None

    def begin(self, tbt_ms: float | None) -> None:
        """Put the slider at the target in force, unless it was moved already."""
        self._set(self._slider or Slider(tbt_ms or UNTIL_KNOWN_MS))

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        stats = view.state.stats
        in_force = stats.strictest_tbt if stats else None
        note = f"in force: {in_force.tbt_ms:g} ms ({in_force.tenant})" if in_force else ""
        one = self._slider or Slider(UNTIL_KNOWN_MS)
        return [
            heading(view, "What another TBT target would do", width, note),
            slider(one, in_force.tbt_ms if in_force else None, width),
            *what_if(view.state.answers.what_if, width, height - 2),
        ]

    def action_slide(self, steps: int) -> None:
        self._set((self._slider or Slider(UNTIL_KNOWN_MS)).moved(steps))

    def action_stride(self, steps: int) -> None:
        self._set((self._slider or Slider(UNTIL_KNOWN_MS)).moved(steps, fine=False))

    def on_click(self, event: events.Click) -> None:
        """Move to where the track was clicked."""
        if event.y == 1 and event.x >= LABEL_WIDTH:
            self._set(Slider.at(event.x - LABEL_WIDTH, track_width(self.size.width)))

    def _set(self, wanted: Slider) -> None:
        if wanted != self._slider:
            self._slider = wanted
            self.repaint()
            self.post_message(self.Moved(wanted.tbt_ms))
