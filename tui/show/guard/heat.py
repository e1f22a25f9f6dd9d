"""The contention guard as a heat map: one decode partition at a time, prefill across, decode batch down.

A cell shows the worst over reused tokens of both sides. Its index stands for a range: prefill of less than
2K*4^i new tokens, decode batches of i bits.
"""

from __future__ import annotations

from pdmuxd.tui.client.wire import GuardCellOut, GuardOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, Run, line
from pdmuxd.tui.show.roles import HEATS, Role
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View

CELL_WIDTH = 7
LABEL_WIDTH = 12
HOTTEST = 1.6
"""A slowdown of this and more has the last heat."""
FIRST_PREFILL_TOKENS = 2048


def partitions(guard: GuardOut | None) -> list[int]:
    """The decode partitions that have cells, by growing SMs."""
    return sorted({cell.decode_sms for cell in guard.cells}) if guard else []


def heat(value: float) -> Role:
    """1 is no contention at all."""
    step = (HOTTEST - 1.0) / len(HEATS)
    return HEATS[min(len(HEATS) - 1, max(0, int((value - 1.0) / step)))]


def guard_map(view: View, decode_sms: int | None, width: int, height: int) -> list[Line]:
    """The map of one decode partition; `↑` marks a cell that was raised by what was seen."""
    answer = view.state.answers.guard
    why, guard = why_unknown(answer), known(answer)
    if why is not None or guard is None:
        return [heading(view, "Contention guard", width), line((why or "", Role.DIM))]
    title = f"Guard beside decode on {decode_sms} SMs" if decode_sms else "Contention guard"
    head = heading(view, title, width)
    cells = worst_cells(guard, decode_sms)
    if not cells:
        return [head, line(("no cell has been measured or raised; the default holds everywhere", Role.DIM))]
    prefills = range(max(prefill for prefill, _ in cells) + 1)
    batches = sorted({batch for _, batch in cells})
    across = "".join(tokens_below(prefill).rjust(CELL_WIDTH) for prefill in prefills)
    lines = [head, line(("decode, new".ljust(LABEL_WIDTH) + across, Role.DIM))]
    for batch in batches:
        runs = [_cell(cells.get((prefill, batch))) for prefill in prefills]
        lines.append(((batch_range(batch).ljust(LABEL_WIDTH), Role.DIM), *runs))
    return lines[:height]


def worst_cells(guard: GuardOut, decode_sms: int | None) -> dict[tuple[int, int], GuardCellOut]:
    """The worst cells by (prefill_new, decode_bs): the highest of those that differ only in reused tokens."""
    worst: dict[tuple[int, int], GuardCellOut] = {}
    for cell in guard.cells:
        place = (cell.prefill_new, cell.decode_bs)
        if cell.decode_sms == decode_sms and (place not in worst or cell.ratio > worst[place].ratio):
            worst[place] = cell
    return worst


def _cell(cell: GuardCellOut | None) -> Run:
    if cell is None:
        return formats.NONE.rjust(CELL_WIDTH), Role.DIM
    mark = "↑" if cell.raised else " "
    return f"{cell.ratio:.2f}{mark}".rjust(CELL_WIDTH), heat(cell.ratio)


def tokens_below(index: int) -> str:
    """The range of tokens of an index, in words."""
    return f"<{formats.count(FIRST_PREFILL_TOKENS * 4**index)}"


def batch_range(bits: int) -> str:
    """The range of decode batch sizes of an index, in words."""
    if bits <= 1:
        return f"bs {bits}"
    return f"bs {2 ** (bits - 1)}-{2**bits - 1}"
