"""Requests that wait, and how many of them are late, over the last minutes."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import AXIS_WIDTH, axis, chart
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.series import Second, scale_s
from pdmuxd.tui.state.view import View

WANTED_S = 300
LEAST_TOP = 4.0


def waiting(view: View, width: int, height: int) -> list[Line]:
    """A title, columns over an axis, its time; red where any of them was late."""
    columns = max(1, width - AXIS_WIDTH)
    scale = scale_s(columns, WANTED_S)
    now_s, series = view.now_s, view.state.series
    head = heading(view, "Waiting for a first token", width, "red: some are past their target")
    lines = chart(
        series.values(_waiting, columns, scale, now_s),
        max(1, height - 2),
        show=formats.count,
        least_top=LEAST_TOP,
        bad=[bool(late) for late in series.values(_late, columns, scale, now_s)],
    )
    return [head, *lines, axis(width, formats.duration(scale * columns))]


def _waiting(second: Second) -> float | None:
    return second.waiting


def _late(second: Second) -> float | None:
    return second.late_now
