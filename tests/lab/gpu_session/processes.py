"""A step's processes: started in a group of their own, and ended with everything that they started.

Servers have sessions of their own, and a step that is killed cannot end them: whatever carries the step's
mark in its environment belongs to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from gpu_session.place import BEGINS
from pdmuxd.daemon.bench.servers.server import die_with_parent

MARK = "GPU_SESSION_STEP"
"""Not a name that starts with PDMUXD_: the daemon keeps those from its engine."""
_GRACE_S = 8.0


class StepProcess:
    """A step that runs."""

    def __init__(self, process: Process, mark: str) -> None:
        self._process = process
        self._mark = mark

    @classmethod
    async def start(
        cls, command: Sequence[str], *, environment: Mapping[str, str], log: Path, folder: Path
    ) -> StepProcess:
        """Run it for the session of `folder`; what it says goes to the end of `log`."""
        mark = f"{folder}:{secrets.token_hex(8)}"
        with log.open("ab") as file:
            file.write(BEGINS.encode())
            file.flush()
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environment) | {MARK: mark, "PYTHONUNBUFFERED": "1"},
                stdin=DEVNULL,
                stdout=file,
                stderr=STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return cls(process, mark)

    async def code(self, within_s: float) -> int | None:
        """Its exit code, or None when it still runs after that time."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._process.wait(), within_s)
        return None

    async def end(self) -> None:
        """Nothing of it is left; a script that is asked first ends its servers itself."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            await self.code(_GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        kill_marked(self._mark)
        await self._process.wait()


def kill_marked(mark: str) -> None:
    """Kill the processes of a step, wherever they are, or those that an earlier session of a folder left."""
    for process in psutil.process_iter(["environ"]):
        # None: it belongs to somebody else.
        if (process.info["environ"] or {}).get(MARK, "").startswith(mark):
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One session per folder at a time; what one before it left running is ended. Raises: BlockingIOError."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kill_marked(f"{folder}:")
        yield
