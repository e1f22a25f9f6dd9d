"""Options in groups are the same command line as options one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from pdmuxd.daemon.cli.option_groups import with_option_groups


@dataclass(frozen=True, kw_only=True)
class Size:
    width: Annotated[int, typer.Option("--width", min=1)] = 4
    is_tall: Annotated[bool, typer.Option("--tall")] = False


def run(*words: str) -> tuple[int, list[object]]:
    seen: list[object] = []

    @with_option_groups
    def draw(name: str, *, size: Size, colour: str = "red") -> None:
        """Draw it."""
        seen.extend((name, size, colour))

    app = typer.Typer()
    app.command()(draw)
    return CliRunner().invoke(app, words).exit_code, seen


def test_a_group_is_filled_from_its_options() -> None:
    assert run("it", "--width", "7", "--tall") == (0, ["it", Size(width=7, is_tall=True), "red"])


def test_the_groups_defaults_hold_when_nothing_is_given() -> None:
    assert run("it", "--colour", "blue") == (0, ["it", Size(), "blue"])


def test_an_option_of_a_group_is_checked() -> None:
    assert run("it", "--width", "0") == (2, [])
