"""A tenant's share in time, with the line of what it was promised: by the minute, or over a day."""

from __future__ import annotations

from pdmuxd.tui.client.wire import TenantLoad
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import AXIS_ROWS, AXIS_WIDTH, axis, chart
from pdmuxd.tui.show.events import events
from pdmuxd.tui.show.heading import heading, said
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.words import worst_first
from pdmuxd.tui.state.spans import DAY_S, TENANT_STEP_S, is_day
from pdmuxd.tui.state.tenants import MINUTES_KEPT
from pdmuxd.tui.state.view import View


def worst(view: View, width: int, height: int) -> list[Line]:
    """The chart of the worst tenant."""
    loads = worst_first(view.state.tenants.tenants) if view.state.tenants is not None else []
    if not loads:
        return [
            heading(view, "In time, by minute", width),
            line((said(view, "no tenant has had traffic"), Role.DIM)),
        ]
    return in_time(loads[0], view, width, height)


def chart_of(tenant: str, view: View, width: int, height: int) -> list[Line]:
    """The chart of that tenant."""
    loads = view.state.tenants.tenants if view.state.tenants is not None else ()
    load = next((one for one in loads if one.tenant == tenant), TenantLoad(tenant=tenant))
    return in_time(load, view, width, height)


def in_time(load: TenantLoad, view: View, width: int, height: int) -> list[Line]:
    """A title, a column or more for each step over an axis, its time."""
    now, past = view.daemon_now, view.state.pasts.of(load.tenant)
    if now is None:
        return [heading(view, "In time, by minute", width)]
    room = max(1, width - AXIS_WIDTH)
    if is_day(view.span):
        length_s, steps = DAY_S, min(room, DAY_S // TENANT_STEP_S)
        ratios = past.met_by_time(now.timestamp(), DAY_S, steps)
        by = f"{formats.duration(DAY_S / steps)} a column"
    else:
        length_s, steps = MINUTES_KEPT * 60, MINUTES_KEPT
        ratios, by = past.met_by_minute(int(now.timestamp() // 60), steps), "by minute"
    wide = max(1, room // steps)
    values = [ratio for ratio in ratios for _ in range(wide)]
    known = [ratio for ratio in ratios if ratio is not None]
    lines = chart(
        values,
        max(1, height - 1 - AXIS_ROWS),
        show=lambda ratio: formats.percent(ratio, 0 if ratio in (0.0, 1.0) else 1),
        target=load.target_ratio or None,
        over_is_bad=False,
        least_top=1.0,
        bottom=max(0.0, min([0.9, *known]) - 0.05),
    )
    signs = events(view, len(values), lambda age_s: len(values) - 1 - int(age_s * len(values) // length_s))
    foot = axis(len(values), formats.duration(length_s) if length_s != DAY_S else "24 h", signs)
    return [heading(view, f"{load.tenant}: in time, {by}", width, "h: 24 h or less"), *lines, *foot]
