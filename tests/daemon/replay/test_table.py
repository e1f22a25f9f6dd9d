from __future__ import annotations

import io

import pytest
from replays import document, plan, replayed
from rich.console import Console

from pdmuxd.daemon.replay.rows import milliseconds, percent, sections, table
from pdmuxd.daemon.report.table import broken


def printed(width: int, *policies: str, tenants: tuple[str, ...] = ("default",)) -> list[str]:
    of = plan(12, tenants=tenants)
    console = Console(file=io.StringIO(), width=width)
    console.print(table(document(of, replayed(of, *policies))))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


FOUR = ("muxwise", "chunked:512", "upstream", "static:96,36")


def test_four_policies_stand_side_by_side_when_the_terminal_has_80_columns() -> None:
    lines = printed(80, *FOUR)
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert lines[0].split() == list(FOUR)
    assert sum("goodput, requests" in line for line in lines) == 1


def test_tables_follow_each_other_when_the_terminal_is_narrow() -> None:
    lines = printed(44, *FOUR)
    assert all(len(line.rstrip()) <= 44 for line in lines)
    heads = [line.split() for line in lines if any(policy in line for policy in FOUR)]
    assert heads == [[policy] for policy in FOUR]


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("muxwise", 12, ["muxwise"]),
        ("slack/chunked:1024", 12, ["slack/", "chunked:1024"]),
        ("slack/chunked:1024", 8, ["slack/", "chunked:", "1024"]),
        ("static:96,36", 10, ["static:96,", "36"]),
        ("a-name-without-any-piece", 8, ["a-name-without-any-piece"]),
        ("", 8, [""]),
    ],
)
def test_a_name_is_broken_between_its_pieces_when_it_is_too_long(
    name: str, width: int, lines: list[str]
) -> None:
    assert broken(name, width).split("\n") == lines


def test_each_tenant_has_a_row_when_there_are_several() -> None:
    lines = printed(80, "muxwise", tenants=("acme", "beta"))
    start = lines.index(next(line for line in lines if "Good by tenant" in line))
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["acme", "beta"]


def test_every_row_has_a_meaning_and_a_cell_per_policy_when_built() -> None:
    of = plan(5)
    for section in sections(document(of, replayed(of, "muxwise", "upstream"))):
        assert section.rows
        assert all(row.meaning and len(row.cells) == 2 for row in section.rows)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "100.0%"),
        (0.99996, "99.9%"),
        (0.9951, "99.5%"),
        (0.5, "50.0%"),
        (0.0004, "0.0%"),
        (0.9, "90.0%"),
    ],
)
def test_a_share_never_rounds_up_to_all_when_shown(ratio: float, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (12.34, "12.3"), (99.99, "100.0"), (1234.5, "1,234"), (float("inf"), "never")],
)
def test_milliseconds_are_readable_when_shown(value: float, text: str) -> None:
    assert milliseconds(value) == text
