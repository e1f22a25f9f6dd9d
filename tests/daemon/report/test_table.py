"""One table in a terminal: what stays, what is spared, what is marked."""

import io
import re

import pytest
from rich.console import Console

from pdmuxd.daemon.report.table import Cell, Table, TableColumn, TableRow, TableSection

COLUMNS = [
    TableColumn(text="policy"),
    TableColumn(text="goodput"),
    TableColumn(text="of best", spared=2),
    TableColumn(text="SMs", spared=1),
    TableColumn(text="p99.9", is_for_page=True),
]


def printed(table: Table, width: int, *, colour: bool = False) -> list[str]:
    system = "standard" if colour else None
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, color_system=system)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def of(label: str) -> Table:
    row = TableRow(label=label, cells=["12.3", Cell("1.00", True), "60/40%", "9"])
    return Table(columns=COLUMNS, sections=[TableSection(title="TBT 20 ms", rows=[row])])


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (60, ["policy", "goodput", "of", "best", "SMs"]),
        (36, ["policy", "goodput", "of", "best"]),
        (27, ["policy", "goodput"]),
    ],
)
def test_columns_are_spared_in_their_order_when_a_terminal_is_narrow(width, heads):
    lines = printed(of("slack/chunked:1024"), width)
    assert lines[0].split() == heads
    assert all(len(line.rstrip()) <= width for line in lines)


def test_what_is_for_the_page_is_not_printed_however_wide_the_terminal_is():
    assert not [line for line in printed(of("muxwise"), 200) if "p99.9" in line or line.endswith(" 9")]


def test_met_targets_are_green_and_missed_ones_red_when_there_are_colours():
    row = TableRow(label="a", cells=[Cell("yes", True), Cell("no", False), "-", "-"])
    line = printed(Table(columns=COLUMNS, sections=[TableSection(rows=[row])]), 80, colour=True)[2]
    assert re.search(r"\x1b\[32m +yes", line)
    assert re.search(r"\x1b\[31m +no", line)


def test_columns_that_are_compared_follow_in_further_tables_when_a_terminal_is_narrow():
    columns = [TableColumn(text="Metric"), TableColumn(text="one"), TableColumn(text="two")]
    rows = [TableRow(label="TTFT", cells=["1", Cell("2")], meaning="m")]
    meaning = TableColumn(text="", is_meaning=True)
    table = Table(columns=[*columns, meaning], sections=[TableSection(rows=rows)], compares="columns")
    heads = [line.split() for line in printed(table, 40) if "one" in line or "two" in line]
    assert heads == [["one"], ["two"]]
    assert printed(table, 80)[0].split() == ["one", "two"]
