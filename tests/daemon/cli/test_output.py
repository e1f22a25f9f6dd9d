"""Tables for people: on a narrow terminal, and in a pipe."""

from __future__ import annotations

import re

import pytest

from pdmuxd.daemon.cli.output import print_fields, print_table

ROWS = [
    {"tenant": "chat-production", "requests in flight": 3, "refused": 0, "TTFT met": "812 of 830 (97.8%)"},
    {"tenant": "batch", "requests in flight": 12, "refused": 4, "TTFT met": "nothing in 5 min"},
]


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> list[str]:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    print_table(ROWS, empty="none")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line.strip() for line in plain.splitlines() if line.strip()]


@pytest.mark.parametrize("columns", [None, 120, 80, 64])
def test_a_row_is_one_line_when_its_cells_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    lines = printed(capsys, monkeypatch, columns)
    assert any(line.startswith("chat-production") and line.endswith("(97.8%)") for line in lines)
    assert any(line.startswith("batch") and line.endswith("nothing in 5 min") for line in lines)


def test_headings_give_way_between_words_when_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = " ".join(printed(capsys, monkeypatch, 64)).split()
    assert {"requests", "flight", "refused", "TTFT"} <= set(words)


def test_each_row_is_a_record_when_its_cells_do_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, monkeypatch, 40)
    assert [" ".join(line.split()) for line in lines if "TTFT met" in line] == [
        "TTFT met 812 of 830 (97.8%)",
        "TTFT met nothing in 5 min",
    ]


def test_a_field_is_one_line_when_it_goes_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"why": "a long reason " * 30})
    assert len(capsys.readouterr().out.splitlines()) == 1
