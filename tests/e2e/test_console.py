"""The real console in a terminal, against the real daemon with the emulated engine under load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from daemon_process import PATIENCE_S
from steady_load import steady_load

TMUX_ROWS, TMUX_COLUMNS = 24, 80
POLICY = "engine.policy=muxwise"
AND_TELL = 'trap : INT TERM; "$@"; echo "ended with status $?"; exec sleep 600'
"""Of a shell: run a command and show how it ended. (tmux can miss the end of a pane's process.)"""


class Tmux:
    """One terminal with the console in it, on a server of its own."""

    def __init__(self, place, command, *, width=TMUX_COLUMNS, height=TMUX_ROWS):
        self._tmux = [tmux(), "-S", str(place / "tmux"), "-f", os.devnull]
        size = ["-x", str(width), "-y", str(height)]
        self._run("new-session", "-d", "-s", "console", *size, "sh", "-c", AND_TELL, "sh", *command)

    def _run(self, *words):
        environ = {name: value for name, value in os.environ.items() if name != "TMUX"}
        return subprocess.run(
            [*self._tmux, *words], check=True, capture_output=True, text=True, timeout=PATIENCE_S, env=environ
        ).stdout

    @property
    def text(self):
        return self._run("capture-pane", "-p", "-t", "console")

    def press(self, *keys):
        self._run("send-keys", "-t", "console", *keys)

    def until(self, condition, *, within_s=PATIENCE_S):
        """Until the screen is as wanted; returns what `condition` found."""
        deadline_s = time.monotonic() + within_s
        while not (found := condition(self.text)):
            assert time.monotonic() < deadline_s, self.text
            time.sleep(0.05)
        return found

    def until_shown(self, text, **options):
        return self.until(lambda shown: text in shown, **options)

    def stop(self):
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=PATIENCE_S)


def tmux():
    """The path of tmux; without it the test is skipped, but not in CI."""
    path = shutil.which("tmux")
    if path is None:
        assert not os.environ.get("CI"), "tmux is missing; install the package tmux"
        pytest.skip("tmux is not installed")
    return path


def decode_sms(text):
    """Of the split in the title of the GPU; None where the screen shows no split."""
    found = re.search(r"now \d+ SMs prefill, (\d+) decode", text)
    return int(found[1]) if found else None


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


def test_the_split_moves_when_an_slo_is_edited_in_the_console(start, open_console):
    daemon = start(settings=[POLICY])
    with steady_load(daemon.data_url, daemon.key, daemon.model, users=24, prompt_words=1500, tokens=300):
        terminal = open_console(daemon)
        terminal.until_shown("Overview")
        terminal.until_shown("● serving")
        before = terminal.until(lambda text: decode_sms(text) in range(1, 100) and decode_sms(text))

        terminal.press("2")
        terminal.until(lambda text: "[2 Tenants]" in text and "default" in text)
        terminal.press("Enter")
        terminal.until_shown("Edits of the targets")
        terminal.press("e")
        terminal.until_shown("Targets of default, version 1")
        terminal.until_shown("of 50 ms")
        terminal.press("C-a")
        terminal.press("C-k")
        terminal.until_shown("TBT, ms is ''")
        terminal.press("1", "4")
        terminal.until_shown("of 14 ms")
        terminal.press("Enter")
        terminal.until_shown("Change the targets of default?")
        terminal.press("y")
        terminal.until(lambda text: re.search(r"^ +2 .* 14 .*in force", text, re.MULTILINE))
        assert daemon.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"] == 14

        terminal.press("1")
        terminal.until_shown("[1 Overview]")
        terminal.until(
            lambda text: decode_sms(text) is not None and before < decode_sms(text) < 132 and "/14 " in text
        )


def test_the_console_survives_when_the_daemon_stops_and_comes_back(start, open_console):
    daemon = start()
    terminal = open_console(daemon)
    terminal.until(lambda text: "● serving" in text and "no engine says" not in text)
    assert daemon.stop() == 0
    terminal.until_shown("No connection to")
    terminal.until_shown("STALE")
    assert "Traceback" not in terminal.text
    port = daemon.admin_url.rpartition(":")[2]
    start(key=daemon.key, settings=[f"admin.port={port}"])
    terminal.press("r")
    terminal.until_shown("● serving")
    terminal.press("q")
    terminal.until_shown("ended with status 0")
