"""docs/errors.md has every code that the gateway answers with, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pdmuxd.daemon.httpd import refusals

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "errors.md").read_text()
SOURCES = "".join(path.read_text() for path in (ROOT / "daemon" / "gateway").rglob("*.py"))
LITERAL = re.compile(r"code=\"(\w+)\"")


def test_every_code_of_the_gateway_is_explained() -> None:
    codes = set(LITERAL.findall(SOURCES)) | {
        it.cause for it in vars(refusals).values() if isinstance(it, refusals.Refusal)
    }
    assert len(codes) > 30
    assert [code for code in sorted(codes) if f"`{code}`" not in TEXT] == []


def test_every_code_of_the_table_is_in_the_code() -> None:
    cells = re.findall(r"^\| \d{3} \| ([^|]*) \|", TEXT, re.MULTILINE)
    named = {code for cell in cells for code in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 30
    written = "".join(
        path.read_text() for folder in ("daemon", "engine") for path in (ROOT / folder).rglob("*.py")
    )
    assert [code for code in sorted(named) if f'"{code}"' not in written] == []
