from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version

import pytest

from pdmuxd.daemon.cli.main import main


@pytest.fixture(autouse=True)
def _hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def test_the_installed_version_is_printed_when_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"pdmuxd {version('pdmuxd')} (Python {platform.python_version()})\n"


def test_json_is_printed_when_a_program_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pdmuxd"] == version("pdmuxd")


@pytest.mark.parametrize("words", [["--version"], ["--version", "serve"]])
def test_the_option_prints_what_the_command_prints(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["version"]) == 0
    said = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == said
