"""A decision as a row of a table."""

from __future__ import annotations

from datetime import tzinfo

from pdmuxd.tui.client.wire import DecisionEvent
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column
from pdmuxd.tui.show.reasons import BAD_REASONS, split_text
from pdmuxd.tui.show.roles import Role

COLUMNS = (
    Column("time", 8),
    Column("×", 4, "right"),
    Column("reason", 0),
    Column("split", 13),
    Column("decode", 6, "right"),
    Column("prefill", 7, "right"),
    Column("pred.", 5, "right"),
    Column("meas.", 5, "right"),
    Column("slack", 5, "right"),
)

ROOMY_WIDTH = 76
SPARED = frozenset({"decode", "prefill", "meas."})
"""Columns that a narrow panel does without."""


def narrowed(width: int) -> tuple[int, ...]:
    """The numbers of the columns that a panel of this width has room for."""
    wanted = range(len(COLUMNS))
    return tuple(at for at in wanted if width >= ROOMY_WIDTH or COLUMNS[at].heading not in SPARED)


def cells(one: DecisionEvent, zone: tzinfo | None) -> list[Cell]:
    """Times in milliseconds; `×` is how many decisions the row stands for."""
    is_late = one.predicted_ms is not None and one.measured_ms is not None
    over = is_late and (one.measured_ms or 0.0) > (one.predicted_ms or 0.0) * (one.guard_ratio or 1.0)
    slack = one.slack_ms
    return [
        Cell(formats.clock(one.at, zone), Role.DIM),
        Cell(formats.count(one.count), Role.DIM),
        Cell(_reason(one), Role.BAD if one.reason in BAD_REASONS else Role.PLAIN),
        Cell(split_text(one.mode, one.prefill_sms, one.decode_sms)),
        Cell(formats.count(one.decode_bs)),
        Cell(formats.count(one.prefill_new_tokens)),
        Cell(formats.ms(one.predicted_ms)),
        Cell(formats.ms(one.measured_ms), Role.WARN if over else Role.PLAIN),
        Cell(formats.ms(slack), Role.BAD if slack is not None and slack < 0 else Role.PLAIN),
    ]


def _reason(one: DecisionEvent) -> str:
    """The reason; how many sit out comes first, as a long reason is cut off, and told whole below."""
    return f"{one.sitting_out} out, {one.reason}" if one.sitting_out else one.reason
