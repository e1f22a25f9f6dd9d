"""Pages that name files of the repository name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATH = re.compile(r"`((?:engine|daemon|controlplane|tests|tui)/[\w./-]+)`")
INVARIANTS = (ROOT / "docs" / "invariants.md").read_text()


@pytest.mark.parametrize("page", ["measurements/papers.md", "invariants.md", "sglang-inside.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    named = set(PATH.findall((ROOT / "docs" / page).read_text()))
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_invariant_has_a_test_that_exists() -> None:
    rows = [line.split("|") for line in INVARIANTS.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row[1]) for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        tests = re.findall(r"`([\w./]+)`", row[4])
        assert tests, row[1]
        for name in tests:
            assert list((ROOT / "tests").rglob(name.removeprefix("tests/").rstrip("/"))), name
