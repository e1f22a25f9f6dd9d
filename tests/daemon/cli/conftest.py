from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from admin_daemon import AdminDaemon, admin_daemon
from shared_apps import app_of_command
from stores import ADMIN_TOKEN, new_database, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.cli import admin_client, lazy, local_admin
from pdmuxd.daemon.cli.main import main

load_once = functools.cache(lazy.load_command)
UNUSED_PORT = 1
"""Nothing listens on it: only root may, and it is nobody's."""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Pdmuxd:
    """Runs `pdmuxd` commands in this process, on a state folder of their own."""

    def __init__(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state = state
        self.port = UNUSED_PORT
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> Result:
        self._capsys.readouterr()
        settings = ["--set", f"state_dir={self.state}", "--set", f"admin.port={self.port}"]
        found = main([*settings, *words])
        captured = self._capsys.readouterr()
        result = Result(found, captured.out, captured.err)
        assert found == code, result
        return result


@pytest.fixture
def pdmuxd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Pdmuxd]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(local_admin, "build_admin_app", app_of_command)
    monkeypatch.setattr(lazy, "load_command", load_once)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    yield Pdmuxd(state, capsys)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def control_plane(pdmuxd: Pdmuxd) -> Iterator[ControlPlane]:
    """What the commands work on."""
    with opened(new_database(pdmuxd.state)) as control_plane:
        yield control_plane


@pytest.fixture
def daemon(
    pdmuxd: Pdmuxd, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AdminDaemon]:
    """A daemon that the commands find."""
    (pdmuxd.state / "admin-token").write_text(ADMIN_TOKEN + "\n")
    # Both are in this process; on a machine at work its answer may take seconds.
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 120.0)
    with admin_daemon(control_plane) as daemon:
        pdmuxd.port = daemon.port
        yield daemon
