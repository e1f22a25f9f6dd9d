"""The worst tenant's share in time, minute by minute, with the line of what it was promised."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import AXIS_WIDTH, chart
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.verdict import worst_first
from pdmuxd.tui.state.tenants import MINUTES_KEPT
from pdmuxd.tui.state.view import View


def worst(view: View, width: int, height: int) -> list[Line]:
    """A title, a column or more for each minute over an axis, its time."""
    loads = worst_first(view.state.tenants.tenants) if view.state.tenants is not None else []
    now = view.daemon_now
    if not loads or now is None:
        return [heading(view, "In time, by minute", width), line(("no tenant has had traffic", Role.DIM))]
    load = loads[0]
    wide = max(1, (width - AXIS_WIDTH) // MINUTES_KEPT)
    minutes = view.state.pasts.of(load.tenant).met_by_minute(int(now.timestamp() // 60), MINUTES_KEPT)
    values = [ratio for ratio in minutes for _ in range(wide)]
    known = [ratio for ratio in minutes if ratio is not None]
    lines = chart(
        values,
        max(1, height - 2),
        show=lambda ratio: formats.percent(ratio, 0 if ratio in (0.0, 1.0) else 1),
        target=load.target_ratio or None,
        over_is_bad=False,
        least_top=1.0,
        bottom=max(0.0, min([0.9, *known]) - 0.05),
    )
    left, right = f"{'':>{AXIS_WIDTH}}{MINUTES_KEPT} min ago", "now"
    foot = left + " " * max(1, AXIS_WIDTH + len(values) - len(left) - len(right)) + right
    return [heading(view, f"{load.tenant}: in time, by minute", width), *lines, line((foot, Role.DIM))]
