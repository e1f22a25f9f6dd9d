"""The page of the papers names code that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = re.compile(r"`((?:engine|daemon|tests)/[\w./-]+)`")


def test_every_file_that_a_mechanism_names_exists() -> None:
    named = set(PATH.findall((ROOT / "docs" / "measurements" / "papers.md").read_text()))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
