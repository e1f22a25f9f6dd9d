"""The slider of a TBT target to try out: its place between the strictest and the loosest, and its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role

LEAST_MS = 1.0
MOST_MS = 1000.0
LABEL_WIDTH = 26


@dataclass(frozen=True, slots=True)
class Slider:
    """A target in ms. The track is logarithmic: 5 ms matter at 10 and not at 500."""

    tbt_ms: float

    def moved(self, steps: int, *, fine: bool = True) -> Slider:
        """Move by a millisecond a step, or by a tenth of the present value."""
        step = 1.0 if fine else max(1.0, round(self.tbt_ms / 10))
        return Slider(min(MOST_MS, max(LEAST_MS, round(self.tbt_ms + steps * step))))

    def cell(self, width: int) -> int:
        """The cell of a track of `width` cells on which it stands."""
        share = math.log(self.tbt_ms / LEAST_MS) / math.log(MOST_MS / LEAST_MS)
        return round(share * (width - 1))

    @classmethod
    def at(cls, cell: int, width: int) -> Slider:
        """The target of a cell, in whole milliseconds."""
        share = min(1.0, max(0.0, cell / max(1, width - 1)))
        return cls(float(round(LEAST_MS * (MOST_MS / LEAST_MS) ** share)))


def track_width(width: int) -> int:
    """The cells of the track itself."""
    return max(2, width - LABEL_WIDTH)


def slider(one: Slider, in_force_ms: float | None, width: int) -> Line:
    """The target in words and on the track, `┼` where the one in force is."""
    cells = ["─"] * track_width(width)
    if in_force_ms is not None:
        cells[Slider(min(MOST_MS, max(LEAST_MS, in_force_ms))).cell(len(cells))] = "┼"
    at = one.cell(len(cells))
    return line(
        (f"{'TBT target ' + formats.plain(one.tbt_ms) + ' ms':<{LABEL_WIDTH}}", Role.STRONG),
        ("".join(cells[:at]), Role.DIM),
        ("◆", Role.KEY),
        ("".join(cells[at + 1 :]), Role.DIM),
    )
