"""docs/metrics.md shows every metric that is defined, as it is defined, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pdmuxd.daemon.metrics.definitions import GROUPS

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_the_tables_are_those_of_the_definitions() -> None:
    wanted = [
        line
        for title, group in GROUPS.items()
        for line in (
            f"## {title}",
            *(f"| `{it.name}` | {it.kind} | {', '.join(it.labels)} | {it.text} |" for it in group),
        )
    ]
    assert re.findall(r"^(?:## .*|\| `.*)$", TEXT, re.MULTILINE) == wanted
