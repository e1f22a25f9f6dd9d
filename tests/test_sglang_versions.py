"""Which versions of SGLang are tried beside the usual one, and what is said of them."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from pdmuxd.engine.sglang.api.versions import TESTED, TRIED

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "sglang_versions.py"))


def run(*asked: str, broken: str = "nothing") -> tuple[list[str], list[str]]:
    """Commands, and what failed; a command that contains `broken` fails."""
    commands: list[str] = []

    def note(command: Sequence[str], environ: Mapping[str, str]) -> bool:
        assert environ[TRIED] in environ["PYTHON_SGLANG"]
        commands.append(" ".join(command))
        return broken not in commands[-1]

    return commands, SCRIPT["main"](asked, note, lambda: "0.9.1")


def test_each_supported_version_and_the_newest_are_tried_when_none_is_named() -> None:
    commands, failed = run()
    installed = [command.rpartition(" ")[2] for command in commands if "install-sglang" in command]
    assert installed == [*TESTED, "0.9.1"]
    assert failed == []


def test_tests_are_left_out_when_a_version_cannot_be_installed() -> None:
    commands, failed = run("newest", TESTED[0], broken="--version 0.9.1")
    assert failed == ["0.9.1: it cannot be installed"]
    assert [("pytest" in command, TESTED[0] in command) for command in commands] == [
        *((False, False), (False, True), (True, False))
    ]
    assert run("newest", broken="pytest")[1] == ["0.9.1: tests fail"]


def test_the_newest_is_what_pip_names_first() -> None:
    assert SCRIPT["newest_of"]("sglang (0.5.24)\nAvailable versions: 0.5.24, 0.5.23\n") == "0.5.24"
    with pytest.raises(SystemExit, match="names none"):
        SCRIPT["newest_of"]("")


def test_all_tests_that_are_named_are_there() -> None:
    assert [name for name in SCRIPT["TESTS"] if not (ROOT / "tests" / "sglang" / name).is_file()] == []


def test_the_weekly_job_tries_the_supported_versions_and_the_newest() -> None:
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "sglang.yml").read_text())["jobs"].values()
    assert job["strategy"]["matrix"]["version"] == [*TESTED, SCRIPT["NEWEST"]]
    assert job["steps"][-1]["run"] == "make test-sglang-versions VERSIONS=${{ matrix.version }}"
