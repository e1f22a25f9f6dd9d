"""Starting and ending the engine's process, and taking over one that another daemon started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link import procfs
from pdmuxd.engine.sglang.launch.mode import SPLIT_MARLIN

_DAEMON_ONLY = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "STATE_DIRECTORY", "RUNTIME_DIRECTORY")
_SETTINGS_PREFIX = "PDMUXD_"
_ENGINES = (SPLIT_MARLIN,)


def engine_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment without what is meant for the daemon alone, with the engine's `own`."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _DAEMON_ONLY and (not name.startswith(_SETTINGS_PREFIX) or name in _ENGINES)
    }
    return inherited | dict(own)


class EngineProcess:
    """An engine, our child or not; not ended by forgetting it, as a library's process would be.

    Belongs to the running event loop. Raises: ProcessLookupError if there is no process `pid`.
    """

    def __init__(self, pid: int, popen: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.has_ended = False
        self.returncode: int | None = None
        """Only known of a child that has ended."""
        self._popen = popen
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    async def wait(self) -> int | None:
        """Wait for its end; the exit code, if it is our child."""
        await self._ended.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Raises: ProcessLookupError."""
        if self.has_ended:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._pidfd, number)

    def let_go(self) -> None:
        """Stop looking after it; it runs on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def leave(self) -> None:
        """Stop looking after it for good."""
        self.let_go()
        if self._popen is not None and self._popen.returncode is None:
            # Else the library warns that it still runs, as it is meant to.
            self._popen.returncode = 0

    def _on_end(self) -> None:
        self.let_go()
        self.has_ended = True
        if self._popen is not None:
            self.returncode = self._popen.wait()
        self._ended.set()


def start(command: Sequence[str], *, environment: Mapping[str, str], log: int) -> EngineProcess:
    """Start `command` as the leader of a session of its own: a terminal's Ctrl-C is for the daemon only.

    Raises: OSError if it cannot be executed.
    """
    popen = subprocess.Popen(  # noqa: S603 - the engine of the settings
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return EngineProcess(popen.pid, popen)


def adopt(pid: int, *, start_ticks: int) -> EngineProcess:
    """Take over the process `pid` that began at `start_ticks`. Raises: EngineError if it has ended."""
    try:
        process = EngineProcess(pid)
    except ProcessLookupError:
        raise EngineError(f"the engine {pid} that was to be taken over has ended") from None
    if procfs.start_ticks(pid) != start_ticks:
        process.let_go()
        raise EngineError(f"the engine {pid} that was to be taken over has ended")
    return process


async def end(process: EngineProcess, *, grace_s: float) -> bool:
    """Ask the process to end, and kill it with all its children after `grace_s`; whether it came to that."""
    try:
        if not process.has_ended and grace_s > 0:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            # Not asyncio.timeout: in a task that is cancelled, as this one is when a daemon stops, it raises
            # CancelledError on Python before 3.11.3, and the end of the killed process is not waited for.
            waiting = asyncio.ensure_future(process.wait())
            try:
                await asyncio.wait((waiting,), timeout=grace_s)
            finally:
                waiting.cancel()
    finally:
        outlived_it = not process.has_ended
        # Also what the engine itself started, and also if this is cancelled because time is up.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    return outlived_it


def describe_exit(returncode: int | None) -> str:
    """Such as `exited with code 3` or `was killed by SIGKILL`; None: it is not known how."""
    if returncode is None:
        return "ended"
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
