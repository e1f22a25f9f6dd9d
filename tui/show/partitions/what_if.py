"""What each split would do for a TBT target, worst case against target."""

from __future__ import annotations

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import FusedOut, WhatIfOut, WhatIfSplitOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.tenants.edit import assumed_text, what_if_text

COLUMNS = (
    Column("", 2),
    Column("split", 13),
    Column("worst case", 10, "right"),
    Column("slack", 6, "right"),
    Column("prefill/s", 9, "right"),
)
TABLE_WIDTH = sum(column.width for column in COLUMNS) + len(COLUMNS)


def what_if(answer: WhatIfOut | Refusal | None, width: int, height: int) -> list[Line]:
    """The verdict, then a line per split and one for fused steps.

    `+` meets the target, `!` does not, `▶` would be chosen.
    """
    lines = what_if_text(answer, width)
    if not isinstance(answer, WhatIfOut):
        return lines
    worst_ms = max([one.worst_ms for one in answer.groups] + [answer.tbt_ms])
    heads = row([Cell(column.heading, Role.DIM) for column in COLUMNS], COLUMNS, TABLE_WIDTH)
    note = line((" worst case, │ is the target", Role.DIM))
    lines += [heads + note, *(_group(one, answer, worst_ms, width) for one in answer.groups)]
    if answer.fused.token_budget:
        lines.append(_fused(answer.fused, answer))
    if len(lines) <= height:
        return lines + assumed_text(answer, width)
    return [
        *lines[: height - 1],
        line((f"{len(lines) - height + 1} splits more in a taller terminal", Role.DIM)),
    ]


def _group(one: WhatIfSplitOut, answer: WhatIfOut, worst_ms: float, width: int) -> Line:
    role = Role.GOOD if one.meets else Role.BAD
    is_chosen = one.partition_id == answer.chosen_partition_id
    cells = [
        Cell("▶" if is_chosen else "+" if one.meets else "!", role),
        Cell(f"P {one.prefill_sms} | D {one.decode_sms}", Role.STRONG if is_chosen else Role.PLAIN),
        Cell(f"{formats.ms(one.worst_ms)} ms", role),
        Cell(formats.ms(one.slack_ms)),
        Cell(formats.count(one.prefill_tokens_per_s)),
    ]
    room = width - TABLE_WIDTH
    if room < 8:
        return row(cells, COLUMNS, TABLE_WIDTH)
    bar = ["█" if cell < round(room * one.worst_ms / worst_ms) else " " for cell in range(room)]
    target = min(room - 1, round(room * answer.tbt_ms / worst_ms))
    return (
        *row(cells, COLUMNS, TABLE_WIDTH),
        ("".join(bar[:target]), role),
        ("│", Role.STRONG),
        ("".join(bar[target + 1 :]), role),
    )


def _fused(one: FusedOut, answer: WhatIfOut) -> Line:
    role = Role.GOOD if one.meets else Role.BAD
    is_chosen = answer.mode == "fused"
    worst_ms = one.worst_ms
    cells = [
        Cell("▶" if is_chosen else "+" if one.meets else "!", role),
        Cell(f"fused, {one.token_budget}", Role.STRONG if is_chosen else Role.PLAIN),
        Cell("" if worst_ms is None else f"{formats.ms(worst_ms)} ms", role),
        Cell("" if worst_ms is None else formats.ms(answer.tbt_ms - worst_ms)),
        Cell("" if one.prefill_tokens_per_s is None else formats.count(one.prefill_tokens_per_s)),
    ]
    return row(cells, COLUMNS, TABLE_WIDTH)
