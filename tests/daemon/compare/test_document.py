from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import msgspec
import pytest
from comparisons import document, plan
from rich.console import Console

from pdmuxd.daemon.compare.goodput import CellGoodput, SeedGoodput
from pdmuxd.daemon.compare.rows import notes, rate_text, table
from pdmuxd.daemon.compare.schema import SCHEMA, CompareDocument
from pdmuxd.daemon.compare.stages import Comparison, compare
from pdmuxd.daemon.report.files import to_json
from pdmuxd.daemon.report.table import text_of

pytestmark = pytest.mark.slow

OF = plan()


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(OF, ["muxwise", "chunked:256", "prefill-first"], [0.02, 0.05], detail=True)


def test_the_json_is_what_the_schema_says_when_written(found: Comparison) -> None:
    written = to_json(document(OF, found))
    read = json.loads(written)
    assert read["schema"] == SCHEMA
    assert read["targets"]["tbt_ms"] == [20.0, 50.0]
    assert json.loads(msgspec.json.encode(msgspec.json.decode(written, type=CompareDocument))) == read
    assert [(c["policy"], c["tbt_ms"]) for c in read["cells"]] == [
        (p, tbt) for tbt in (20.0, 50.0) for p in ("muxwise", "chunked:256", "prefill-first")
    ]


def test_ratios_are_to_the_best_of_the_same_target_when_built(found: Comparison) -> None:
    built = document(OF, found)
    for tbt_ms in built.targets.tbt_ms:
        cells = [cell for cell in built.cells if cell.tbt_ms == tbt_ms]
        best = max(cell.goodput_requests_per_s for cell in cells)
        assert [cell.ratio_to_best for cell in cells] == [c.goodput_requests_per_s / best for c in cells]


def test_the_mean_is_over_the_seeds_when_built(found: Comparison) -> None:
    cell = document(OF, found).cells[0]
    rates = [seed.goodput_requests_per_s for seed in cell.seeds]
    assert cell.goodput_requests_per_s == pytest.approx(sum(rates) / 2)
    p99s = [seed.metrics.ttft.p99_ms for seed in cell.seeds]  # type: ignore[union-attr]
    assert cell.at_goodput is not None
    assert cell.at_goodput.ttft_p99_ms == pytest.approx(sum(p99s) / 2)


def test_the_table_shows_the_json_s_numbers_in_80_columns_when_printed(found: Comparison) -> None:
    built = document(OF, found)
    text = StringIO()
    Console(file=text, width=80).print(table(built))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "chunked:256" in line)
    cell = next(cell for cell in built.cells if cell.policy == "chunked:256")
    assert rate_text(cell.goodput_requests_per_s) in row.split()
    assert [line.strip() for line in lines if line.startswith("TBT")] == ["TBT 20 ms", "TBT 50 ms"]


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("slack/chunked:1024", 80, ["slack/chunked:1024"]),
        ("slack/chunked:1024", 66, ["slack/", "chunked:1024"]),
        ("muxwise", 60, ["muxwise"]),
    ],
)
def test_a_name_is_broken_between_its_pieces_when_there_is_no_room(
    found: Comparison, name: str, width: int, lines: list[str]
) -> None:
    built = document(OF, found)
    renamed = [msgspec.structs.replace(cell, policy=name) for cell in built.cells if "256" in cell.policy]
    text = StringIO()
    of = table(msgspec.structs.replace(built, cells=tuple(renamed)))
    Console(file=text, width=width).print(of)
    printed = text.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in printed)
    at = next(number for number, line in enumerate(printed) if line.split()[:1] == lines[:1])
    assert [line.split()[0] for line in printed[at : at + len(lines)]] == lines


def nothing_held() -> Comparison:
    seeds = (SeedGoodput(seed=0, rate_rps=0.0, metrics=None, probes=(), seconds=60.0),)
    return Comparison(cells=(CellGoodput(policy="muxwise", tbt_s=0.02, seeds=seeds),), curve=(), common=())


def test_a_dash_stands_for_what_is_not_known_when_no_rate_was_held() -> None:
    built = document(OF, nothing_held())
    (row,) = table(built).sections[0].rows
    assert row.label == "muxwise"
    assert [text_of(cell) for cell in row.cells] == ["0", *"----------"][: len(row.cells)]
    assert len(row.cells) == len(table(built).columns) - 1
    assert built.cells[0].ratio_to_best is None
    assert any("A goodput of 0 means" in note for note in notes(built))


def test_a_note_warns_when_runs_have_few_requests(found: Comparison) -> None:
    assert any("single ones decide" in note for note in notes(document(OF, found)))


def test_a_note_names_who_has_not_settled() -> None:
    of = replace(OF, doublings=2)
    seeds = tuple(
        SeedGoodput(seed=seed, rate_rps=0.0, metrics=None, probes=(), seconds=12.0, stands=stands)
        for seed, stands in enumerate((True, False))
    )
    cells = tuple(
        CellGoodput(policy=policy, tbt_s=0.02, seeds=mine)
        for policy, mine in (("muxwise", seeds), ("auto", seeds[:1]))
    )
    said = notes(document(of, Comparison(cells=cells, curve=(), common=())))
    (unsettled,) = [note for note in said if note.startswith("Not settled")]
    assert f"runs of {4 * of.seconds:g} s" in unsettled
    assert "muxwise at 20 ms" in unsettled
    assert "auto" not in unsettled


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0"), (0.4951, "0.495"), (1.5, "1.50"), (24.87, "24.9"), (1234.4, "1,234")]
)
def test_three_digits_are_shown_when_a_rate_is_printed(rate: float, text: str) -> None:
    assert rate_text(rate) == text
