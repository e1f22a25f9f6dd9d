"""Whether the database can be written and the disk has room, asked by a thread of its own.

A database that hangs holds this thread alone: how long it has waited is known without it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.core.errors import StoreError

LOOK_EVERY_S = 2.0
SILENT_AFTER_S = 4.0
"""With LOOK_EVERY_S and the alarms' second this is told within 7 s. A write takes milliseconds."""


class StoreWatch:
    """Watches the store. Its answers are read in the event loop; `beat` writes to the database."""

    def __init__(
        self, beat: Callable[[], None], state_dir: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.free_bytes: int | None = None
        """Of the file system with the state directory; None until it was asked, or if it does not say."""
        self._beat = beat
        self._state_dir = state_dir
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-watch")
        self._thread.submit(int)  # begins the thread now: a daemon that is out of memory later could not
        self._failed_because: str | None = None
        self._asked_s: float | None = None

    def unwritable_because(self) -> str | None:
        """Why nothing can be written now; None if it can."""
        asked_s = self._asked_s
        if asked_s is not None and (waited_s := self._clock() - asked_s) > SILENT_AFTER_S:
            return f"the database has not answered a write for {waited_s:.0f} s"
        return self._failed_because

    async def look(self) -> None:
        """Write, and ask for the room on the disk."""
        self._asked_s = self._clock()
        try:
            self._failed_because = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask)
        finally:
            self._asked_s = None

    def close(self) -> None:
        """Ask no more; what is asked now is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self) -> str | None:
        try:
            self.free_bytes = shutil.disk_usage(self._state_dir).free
        except OSError:
            self.free_bytes = None
        try:
            self._beat()
        except StoreError as error:
            return str(error)
        return None


def duties(watch: StoreWatch) -> tuple[Duty, ...]:
    """Look every LOOK_EVERY_S."""
    name = "watching the database"
    return (Duty(name=name, work=watch.look, period_s=LOOK_EVERY_S, at_end=watch.close),)
