"""The check that `make lint` makes of retired names finds what it is there for."""

from __future__ import annotations

from pathlib import Path

from retired_names import comebacks


def found_in(tmp_path: Path, text: str, name: str = "new.py") -> list[str]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return list(comebacks(tmp_path, [name]))


def test_a_retired_name_is_found_with_its_line_and_what_to_say_when_it_comes_back(tmp_path: Path) -> None:
    assert found_in(tmp_path, "import os\nsteering = 1\n") == [
        "new.py:2: steering is retired; say policy_runtime"
    ]


def test_nothing_is_found_when_a_retired_name_is_part_of_another_word(tmp_path: Path) -> None:
    assert not found_in(tmp_path, "power_steering_wheel = 'overruns, babysitting'\n")


def test_nothing_is_found_when_the_file_may_tell_of_the_past(tmp_path: Path) -> None:
    assert not found_in(tmp_path, "`awd` is adaptive batching now\n", "docs/glossary.md")
