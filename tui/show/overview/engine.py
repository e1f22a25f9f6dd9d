"""Which engine this is."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


def engine(view: View, width: int, height: int) -> list[Line]:
    """Model, device, profile, versions, settings."""
    found, stats = view.state.engine, view.state.stats
    head = heading(view, "Engine", width)
    if found is None:
        return [head, line(("none has said hello yet", Role.DIM))]
    up = formats.duration(stats.uptime_ms / 1000) if stats and stats.uptime_ms is not None else formats.NONE
    in_force = found.wanted_version == found.acked_version
    settings = f"{formats.count(found.acked_version)}" + (
        " in force" if in_force else f", {found.wanted_version} on its way"
    )
    rows = (
        ("model", found.model),
        ("profile", found.profile),
        ("policy", found.policy),
        ("engine", f"{found.kind or formats.NONE} {found.engine_version or ''}, pid {found.pid}"),
        ("up", f"{up}, {found.restarts} restarts"),
        ("settings", settings),
    )
    return [
        head,
        *(line((f"{name:<9}", Role.DIM), formats.printable(value or formats.NONE)) for name, value in rows),
    ][:height]
