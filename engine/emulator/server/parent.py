"""Noticing the death of the process that this one belongs to."""

from __future__ import annotations

import asyncio
import os

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link.owner import owner_lives

_CHECK_EVERY_S = 0.5


class Parent:
    """The process that this one belongs to: the one that started it, if it asked to be watched, or the one
    that took it over later.

    Beside the address `link` a new owner is named. The parent is polled: the kernel's signal of its death
    cannot be told from a request to stop. Raises: EngineError if `pid` is not the parent (any more).
    """

    def __init__(self, pid: int | None, link: str | None = None) -> None:
        self._pid = pid
        self._link = link
        if self.has_died:
            raise EngineError(f"--parent-pid is {pid}, but the parent process is {os.getppid()}")

    @property
    def watched(self) -> bool:
        """Whether there is a process that decides when this one stops."""
        return self._pid is not None

    @property
    def has_died(self) -> bool:
        return self._pid is not None and not owner_lives(self._link, self._pid)

    async def death(self) -> None:
        """Wait until it has died."""
        while not self.has_died:  # noqa: ASYNC110 - a parent's death raises no event here
            await asyncio.sleep(_CHECK_EVERY_S)
