"""Example and reference say what the settings are."""

from __future__ import annotations

import functools
import operator
import tomllib
from pathlib import Path

from settings_files import load, toml

from pdmuxd.daemon.settings.example import example_toml
from pdmuxd.daemon.settings.keys import all_keys


def test_the_example_gives_the_defaults_when_it_is_read(tmp_path: Path) -> None:
    loaded = load(config=toml(tmp_path, example_toml()))
    assert loaded.settings.model_dump() == load().settings.model_dump()
    fixed = {key.name for key in all_keys() if key.default is not None}
    assert {key for key, origin in loaded.origins.items() if origin.startswith("file")} == fixed


def test_the_example_is_valid_when_its_commented_keys_are_taken_too(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("# ") if line.startswith("# ") and " = " in line else line
        for line in example_toml().splitlines()
    ]
    text = "\n".join(lines)
    load(config=toml(tmp_path, text))
    written = tomllib.loads(text)
    for key in all_keys():
        *sections, name = key.name.split(".")
        assert name in functools.reduce(operator.getitem, sections, written)


def test_every_key_says_what_it_is_when_it_is_listed() -> None:
    for key in all_keys():
        assert key.summary.endswith("."), key.name
        assert key.allowed, key.name
        assert (key.unit == "seconds") == key.name.endswith("_s")


def test_the_reference_lists_every_key_with_its_default_when_it_is_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text("utf-8")
    for key in all_keys():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{key.name}` |")), "")
        assert row, f"{key.name} is missing"
        assert key.default is None or f"| `{_as_toml(key.default)}` |" in row, row


def _as_toml(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value) or '""'
    )
