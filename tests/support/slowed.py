"""Slows one side of the tests of whole processes, so that the other side is the faster one by far.

    TEST_SLOWED=daemon|engine|client make test-slow

A test that holds only where one process is faster than another fails then. As a program, `slowed.py SIDE PID`
stops that side of the tree below PID (a daemon's, or for the client a test's own process) again and again for
up to STOPPED_S, until PID has ended.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil

SIDES = ("daemon", "engine", "client")
VARIABLE = "TEST_SLOWED"
STOPPED_S = 0.2
"""Below every timeout of the product."""

_slowing: dict[int, subprocess.Popen[bytes]] = {}
"""By what they slow; they end by themselves."""


def slow(side: str, pid: int) -> None:
    """Slow what the variable names, if it is this side."""
    wanted = os.environ.get(VARIABLE)
    assert wanted in (None, *SIDES), f"{VARIABLE} is {wanted}; allowed: {', '.join(SIDES)}"
    if wanted == side and pid not in _slowing:
        command = [sys.executable, str(Path(__file__)), side, str(pid)]
        _slowing[pid] = subprocess.Popen(command, start_new_session=True)


def _members(side: str, root: psutil.Process) -> list[psutil.Process]:
    if side == "client":
        return [root]
    tree = [root, *root.children(recursive=True)]
    return [one for one in tree if ("pdmuxd.engine" in " ".join(one.cmdline())) == (side == "engine")]


def main() -> None:
    """See the top."""
    side, root = sys.argv[1], psutil.Process(int(sys.argv[2]))
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        time.sleep(random.uniform(0, STOPPED_S))
        stopped = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in _members(side, root):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.status() != psutil.STATUS_STOPPED:  # else a test has stopped it
                        process.suspend()
                        stopped.append(process)
        time.sleep(random.uniform(0, STOPPED_S))
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


if __name__ == "__main__":
    main()
