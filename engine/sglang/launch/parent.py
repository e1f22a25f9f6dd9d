"""Noticing in the server's main process that the daemon has died."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link.owner import owner_lives

ORPHAN_DRAIN_S = 10.0
"""How long requests in flight may go on when the daemon has died."""
_CHECK_EVERY_S = 0.5

_log = logging.getLogger(__name__)


def watch(pid: int, link: str | None) -> None:
    """End this process and its children when its parent `pid` dies, from a thread of its own.

    If that gave it to another daemon, it is named beside `link` and watched instead.
    SGLang stops by itself on SIGTERM once nothing is in flight; clients of a dead daemon never end their
    streams, so that the time is bounded here. Raises: EngineError if `pid` is not the parent (any more).
    """
    if not owner_lives(link, pid):
        raise EngineError(f"--parent-pid is {pid}, but the parent process is {os.getppid()}")
    threading.Thread(target=_wait, args=(pid, link), name="parent", daemon=True).start()


def _wait(pid: int, link: str | None) -> None:
    while owner_lives(link, pid):
        time.sleep(_CHECK_EVERY_S)
    _log.warning("the parent process died; finishing within %g s", ORPHAN_DRAIN_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_DRAIN_S)
    # The server is the leader of its process group where a daemon started it.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
