"""Real processes on loopback: `pdmuxd serve` with its engine, on free ports, in a folder with a space."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from daemon_process import Daemon, SharedDaemon, is_running, wait_until
from tmux_console import Tmux

HERE = f"{Path(__file__).parent}{os.sep}"
QUICK = ("test_serving.py",)
"""Their tests share one daemon, so `make test` can afford them; the others are left to `make test-all`."""


def pytest_collection_modifyitems(items):
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker("e2e")
            if item.path.name not in QUICK:
                item.add_marker("slow")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "a folder"
    made.mkdir()
    return made


@pytest.fixture
def start(folder):
    """Start daemons in one folder; those still running are stopped."""
    with contextlib.ExitStack() as stack:

        def begin(**options):
            daemon = Daemon(folder, **options)
            stack.callback(daemon.stop)
            return daemon

        yield begin


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with contextlib.closing(SharedDaemon(lambda: Daemon(tmp_path_factory.mktemp("with a space")))) as made:
        yield made


@pytest.fixture
def daemon(shared):
    """One daemon for all tests of a module that leave it as it was."""
    return shared.get()


@pytest.fixture(scope="session")
def until():
    return wait_until


@pytest.fixture(scope="session")
def running():
    return is_running


@pytest.fixture
def open_console(tmp_path):
    terminals = []

    def begin(daemon, **options):
        settings = ["--set", f"state_dir={daemon.folder / '.pdmuxd'}"]
        command = [
            sys.executable,
            "-m",
            "pdmuxd.daemon.cli.main",
            *settings,
            "top",
            "--url",
            daemon.admin_url,
        ]
        terminals.append(Tmux(tmp_path, command, **options))
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.stop()
