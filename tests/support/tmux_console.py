"""The real console in a terminal of its own: tmux."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest
from daemon_process import PATIENCE_S

TMUX_ROWS, TMUX_COLUMNS = 24, 80
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
