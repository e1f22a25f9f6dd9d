"""The partition groups: time in each, decisions, tokens."""

from __future__ import annotations

from pdmuxd.tui.client.wire import GroupOut, PartitionsOut, UseOut, WorkOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import meter
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View

COLUMNS = (
    Column("", 2),
    Column("group", 6),
    Column("prefill", 7, "right"),
    Column("decode", 6, "right"),
    Column("time", 5, "right"),
    Column("decisions", 9, "right"),
    Column("prefill tok", 11, "right"),
    Column("decode tok", 10, "right"),
)
TABLE_WIDTH = sum(column.width for column in COLUMNS) + len(COLUMNS)


def groups(view: View, width: int, height: int) -> list[Line]:
    """A line per group, then fused, decode by itself and idle; the one in force is marked."""
    answer = view.state.answers.partitions
    why = why_unknown(answer)
    found = known(answer)
    if why is not None or found is None:
        return [heading(view, "Partition groups", width), line((why or "", Role.DIM))]
    since = formats.moment(found.since, view.daemon_now, view.zone)
    note = f"{formats.count(found.switches)} switches since {since}"
    head = heading(view, "Partition groups", width, note)
    names = row([Cell(column.heading, Role.DIM) for column in COLUMNS], COLUMNS, TABLE_WIDTH)
    lines = [head, names, *(_group(one, view, width) for one in found.groups), *_others(found, width)]
    return lines[:height]


def _group(one: GroupOut, view: View, width: int) -> Line:
    stats = view.state.stats
    # The stream is newer than the answer to a question.
    in_force = (
        stats.partition_id == one.partition_id if stats and stats.partition_id is not None else one.in_force
    )
    is_split = stats is None or stats.mode not in ("fused", "decode")
    role = Role.STRONG if in_force and is_split else Role.PLAIN
    mark = "▶" if in_force and is_split else ""
    cells = [
        Cell(mark, role),
        Cell(str(one.partition_id), role),
        Cell(str(one.prefill_sms)),
        Cell(str(one.decode_sms)),
    ]
    return row([*cells, *_use(one)], COLUMNS, TABLE_WIDTH) + _bar(one, width)


def _others(found: PartitionsOut, width: int) -> list[Line]:
    blank = [Cell(""), Cell("")]
    return [
        row([Cell(""), Cell("fused"), *blank, *_use(found.fused)], COLUMNS, TABLE_WIDTH)
        + _bar(found.fused, width),
        row([Cell(""), Cell("decode"), *blank, *_use(found.decode)], COLUMNS, TABLE_WIDTH)
        + _bar(found.decode, width),
        row([Cell(""), Cell("idle"), *blank, *_use(found.idle)], COLUMNS, TABLE_WIDTH)
        + _bar(found.idle, width),
    ]


def _use(one: UseOut) -> list[Cell]:
    done = (one.decisions, one.prefill_tokens, one.decode_tokens) if isinstance(one, WorkOut) else (0, 0, 0)
    return [Cell(formats.percent(one.time_ratio)), *(Cell(formats.count(number)) for number in done)]


def _bar(one: UseOut, width: int) -> Line:
    return meter(one.time_ratio, width - TABLE_WIDTH) if width > TABLE_WIDTH + 4 else ()
