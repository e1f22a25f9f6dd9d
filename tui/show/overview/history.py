"""The last minutes as a strip of stacked shares."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import strip_chart
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.series import scale_s
from pdmuxd.tui.state.view import View

WANTED_S = 300


def history(view: View, width: int, height: int) -> list[Line]:
    """A title that names the scale, and the chart."""
    scale = scale_s(width, WANTED_S)
    span = formats.duration(scale * width)
    head = heading(view, f"SM time, last {span}", width, f"{scale} s per column, newest right")
    shares = view.state.series.shares(width, scale, view.now_s)
    return [head, *strip_chart(shares, max(1, height - 1), letters=view.letters)]
