"""The last minutes as a strip of stacked shares."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import AXIS_WIDTH, axis, strip_chart
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.series import scale_s
from pdmuxd.tui.state.view import View

WANTED_S = 300


def history(view: View, width: int, height: int) -> list[Line]:
    """A title that names the scale, the chart with its axis, its time."""
    columns = max(1, width - AXIS_WIDTH)
    scale = scale_s(columns, WANTED_S)
    head = heading(view, "SM time", width, f"{scale} s per column")
    shares = view.state.series.shares(columns, scale, view.now_s)
    strip = strip_chart(shares, max(1, height - 2), letters=view.letters)
    labels = ["100%", *[""] * (len(strip) - 2), "0%"] if len(strip) > 1 else ["100%"]
    rows: list[Line] = [
        ((f"{label:>{AXIS_WIDTH - 2}} ", Role.DIM), ("┤", Role.RULE), *one)
        for label, one in zip(labels, strip, strict=True)
    ]
    return [head, *rows, axis(width, formats.duration(scale * columns))]
