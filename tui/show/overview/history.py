"""The last minutes as a strip of stacked shares."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import AXIS_ROWS, AXIS_WIDTH, axis, strip_chart
from pdmuxd.tui.show.events import events_by_second
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


def history(view: View, width: int, height: int) -> list[Line]:
    """A title that names the scale, the chart with its axis, its time."""
    columns = max(1, width - AXIS_WIDTH)
    scale = view.scale_s(columns)
    head = heading(view, "SM time", width, f"{formats.duration(scale)} per column, h: {view.span.name}")
    shares = view.series.shares(columns, scale, view.now_s)
    strip = strip_chart(shares, max(1, height - 1 - AXIS_ROWS), letters=view.letters)
    labels = ["100%", *[""] * (len(strip) - 2), "0%"] if len(strip) > 1 else ["100%"]
    rows: list[Line] = [
        ((f"{label:>{AXIS_WIDTH - 2}} ", Role.DIM), ("┤", Role.RULE), *one)
        for label, one in zip(labels, strip, strict=True)
    ]
    foot = axis(columns, formats.duration(scale * columns), events_by_second(view, columns, scale))
    return [head, *rows, *foot]
