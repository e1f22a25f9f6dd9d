"""The recipes of docs/recipes.md do what they say, in their order, against a daemon's admin address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from admin_daemon import admin_daemon
from stores import ADMIN_TOKEN, new_database, opened

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
BLOCKS = re.findall(r"\*\*(\d+)\. .*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_there_are_ten_recipes_in_their_order() -> None:
    assert [int(number) for number, _ in BLOCKS] == list(range(1, 11))


def test_every_recipe_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: dict[int, str] = {}
    with opened(new_database(tmp_path)) as control_plane, admin_daemon(control_plane) as daemon:
        monkeypatch.setenv("PDMUXD", f"http://127.0.0.1:{daemon.port}")
        monkeypatch.setenv("PDMUXD_TOKEN", ADMIN_TOKEN)
        names: dict[str, Any] = {}
        for number, text in BLOCKS:
            exec(compile(text, f"recipe {number}", "exec"), names)
            said[int(number)] = capsys.readouterr().out
        names["client"].close()
        chat = control_plane.get_tenant("chat")
        keys = control_plane.keys.list("chat")
        entries = control_plane.audit(limit=100)
    assert (chat.priority_class, chat.weight) == ("interactive", 2.0)
    assert (chat.revision.slo.tbt_s, chat.revision.slo.attainment_ratio) == (0.03, 0.99)
    assert said[4].startswith("tbt_ms tbt_ms is 0; allowed are")
    assert said[5] == "chat 30.0\n"
    assert said[7] == "3 tenants created\n"
    assert len(keys) == 2, "one was issued, and one in its place"
    assert said[9].startswith("from,")
    assert "key.rotate" in said[9]
    assert {entry.why for entry in entries} == {"onboarding"}
    assert re.match(r"\d{4}-", said[10])
