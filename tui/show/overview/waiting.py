"""Requests that wait, and how many of them are late, over the last minutes."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import AXIS_ROWS, AXIS_WIDTH, axis, chart
from pdmuxd.tui.show.events import events_by_second
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.series import Second
from pdmuxd.tui.state.view import View

LEAST_TOP = 4.0


def waiting(view: View, width: int, height: int) -> list[Line]:
    """A title, columns over an axis, its time; red where any of them was late."""
    columns = max(1, width - AXIS_WIDTH)
    scale = view.scale_s(columns)
    now_s, series = view.now_s, view.series
    head = heading(view, "Waiting for a first token", width, f"red: some are late, h: {view.span.name}")
    lines = chart(
        series.values(_waiting, columns, scale, now_s),
        max(1, height - 1 - AXIS_ROWS),
        show=formats.count,
        least_top=LEAST_TOP,
        bad=[bool(late) for late in series.values(_late, columns, scale, now_s)],
    )
    foot = axis(columns, formats.duration(scale * columns), events_by_second(view, columns, scale))
    return [head, *lines, *foot]


def _waiting(second: Second) -> float | None:
    return second.waiting


def _late(second: Second) -> float | None:
    return second.late_now
