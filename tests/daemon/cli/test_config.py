from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from pdmuxd.daemon.cli.main import main


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, object]]:
    assert main([*words, "config", "show", "--json"]) == 0
    found: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_each_value_is_shown_with_its_origin_when_it_comes_from_different_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pdmuxd.toml").write_text("drain_timeout_s = 5\n[data]\nport = 1\n")
    monkeypatch.setenv("PDMUXD_ENGINE__POLICY", "chunked:512")
    monkeypatch.setenv("PDMUXD_DATA__PORT", "2")
    found = shown(capsys, "--set", "admin.port=4", "--log-level", "error")
    assert found["drain_timeout_s"] == {"value": 5.0, "origin": "file pdmuxd.toml"}
    assert found["data.port"] == {"value": 2, "origin": "env PDMUXD_DATA__PORT"}
    assert found["engine.policy"] == {"value": "chunked:512", "origin": "env PDMUXD_ENGINE__POLICY"}
    assert found["admin.port"] == {"value": 4, "origin": "flag"}
    assert found["log.level"] == {"value": "error", "origin": "flag"}
    assert found["engine.model_name"] == {"value": None, "origin": "default"}


def test_the_resolved_paths_are_shown_when_they_were_left_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(capsys, "--set", "state_dir=state")
    assert found["state_dir"]["value"] == str(tmp_path / "state")
    assert found["admin.token_file"] == {
        "value": str(tmp_path / "state" / "admin-token"),
        "origin": "default",
    }
    assert found["database_url"]["value"] == f"sqlite:///{tmp_path / 'state' / 'pdmuxd.db'}"


def test_no_password_is_shown_when_the_database_url_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    url = "database_url=postgresql://me:hunter2@host/db"
    assert shown(capsys, "--set", url)["database_url"]["value"] == "postgresql://me:***@host/db"
    assert main(["--set", url, "config", "show"]) == 0
    assert "hunter2" not in capsys.readouterr().out


def test_a_line_for_each_setting_is_printed_when_people_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", f"state_dir=/{'x' * 90}", "config", "show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# configuration file: none"
    assert ["data.port", "8080", "default"] in [line.split() for line in lines]
    assert lines[-1].startswith("# sockets are put into /tmp/pdmuxd-")


def test_the_example_is_toml_that_the_daemon_takes_when_it_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "example"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["data"]["port"] == 8080
    (tmp_path / "pdmuxd.toml").write_text(text)
    assert shown(capsys)["data.port"]["origin"] == "file pdmuxd.toml"
