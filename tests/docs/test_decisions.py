"""Decisions have one format, and their index is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
HEAD = re.compile(
    r"# (\d{4}): (.+)\nAccepted (\d{4}-\d\d-\d\d)(?:, replaces \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\))?\.\n\n"
)
PARTS = ["Context.", "Decision.", "Consequences.", "Measured", "Alternatives."]
"""In this order; the first three are on every page."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_decision_has_its_number_date_and_parts(path: Path) -> None:
    text = path.read_text()
    head = HEAD.match(text)
    assert head, "the first two lines: # NUMBER: Title, Accepted YYYY-MM-DD."
    assert path.name.startswith(f"{head[1]}-")
    parts = re.findall(r"^\*\*([^*]+)\*\*", text, re.MULTILINE)
    assert parts == [part for part in PARTS if part in parts]
    assert parts[:3] == PARTS[:3]


def test_the_index_lists_every_decision_once_in_order() -> None:
    lines = []
    for path in PAGES:
        head = HEAD.match(path.read_text())
        assert head
        lines.append(f"| {head[1]} | [{head[2]}]({path.name}) | {head[3]} |")
    listed = [line for line in (FOLDER / "README.md").read_text().splitlines() if re.match(r"\| \d", line)]
    assert listed == lines


def test_numbers_are_given_once() -> None:
    numbers = [int(path.name[:4]) for path in PAGES]
    assert len(set(numbers)) == len(numbers)
