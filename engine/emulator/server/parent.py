"""Noticing the death of the process that started this one."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys

from pdmuxd.engine.core.errors import EngineError

_PR_SET_PDEATHSIG = 1
_CHECK_EVERY_S = 0.5


class Parent:
    """The process that started this one, if it asked to be watched.

    The kernel sends SIGTERM when it dies; the check covers what the kernel does not: a death before the
    request, and systems without it. Raises: EngineError if `pid` is not the parent (any more).
    """

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        if pid is None:
            return
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if self.has_died:
            raise EngineError(f"--parent-pid is {pid}, but the parent process is {os.getppid()}")

    @property
    def watched(self) -> bool:
        """Whether there is a process that decides when this one stops."""
        return self._pid is not None

    @property
    def has_died(self) -> bool:
        """Whether it was watched and is gone."""
        return self._pid is not None and os.getppid() != self._pid

    async def death(self) -> None:
        """Wait until it has died."""
        while not self.has_died:  # noqa: ASYNC110 - a parent's death raises no event here
            await asyncio.sleep(_CHECK_EVERY_S)
