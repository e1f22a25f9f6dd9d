"""What the shell offers when the tab key is pressed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pdmuxd.daemon.cli import lazy
from pdmuxd.daemon.cli.main import COMMANDS, main
from pdmuxd.engine.core.policies.registry import known_policies
from pdmuxd.engine.emulator.profile import available_profiles

Offered = Callable[[str], list[str]]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """What bash is offered for a line; a space at its end begins another word."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def ask(line: str) -> list[str]:
        monkeypatch.setenv("_PDMUXD_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit) as ended:
            main([])
        assert not ended.value.code
        return capsys.readouterr().out.split()

    return ask


def test_all_commands_are_offered_without_importing_one_when_nothing_is_typed(
    offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "load_command", lambda *names: pytest.fail(f"{names} was imported"))
    assert offered("pdmuxd ") == list(COMMANDS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pdmuxd te", ["tenant"]),
        ("pdmuxd nothing", []),
        ("pdmuxd tenant key l", ["list"]),
        ("pdmuxd --ver", ["--version"]),
        ("pdmuxd slo set --tb", ["--tbt-ms"]),
        ("pdmuxd serve --engine e", ["emulator"]),
        ("pdmuxd serve --policy mux", ["muxwise"]),
        ("pdmuxd compare trace --policy mux", ["muxwise"]),
    ],
)
def test_what_begins_so_is_offered_when_a_part_is_typed(
    offered: Offered, line: str, expected: list[str]
) -> None:
    assert sorted(offered(line)) == expected


def test_every_policy_and_shipped_profile_is_offered_when_a_value_is_wanted(offered: Offered) -> None:
    assert offered("pdmuxd replay trace --policy ") == [info.name for info in known_policies()]
    assert offered("pdmuxd replay trace --profile ") == list(available_profiles())


def test_bash_completes_when_it_has_read_the_script(tmp_path: Path) -> None:
    script = """
        eval "$(pdmuxd --show-completion)"
        COMP_WORDS=(pdmuxd do) COMP_CWORD=1
        _pdmuxd_completion pdmuxd
        echo "${COMPREPLY[@]}"
    """
    (tmp_path / "pdmuxd").symlink_to(Path(sys.executable).with_name("pdmuxd"))
    ended = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "doctor\n", ended.stderr
