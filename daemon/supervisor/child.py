"""Starting and ending the engine's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping, Sequence

_DAEMON_ONLY = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "STATE_DIRECTORY", "RUNTIME_DIRECTORY")
_SETTINGS_PREFIX = "PDMUXD_"


def engine_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment without what is meant for the daemon alone, with the engine's `own`."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _DAEMON_ONLY and not name.startswith(_SETTINGS_PREFIX)
    }
    return inherited | dict(own)


def free_port(host: str) -> int:
    """A port that nobody listens on now."""
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def start(command: Sequence[str], *, environment: Mapping[str, str], log: int) -> Process:
    """Start `command` as the leader of a session of its own: a terminal's Ctrl-C is for the daemon only.

    Raises: OSError if it cannot be executed.
    """
    return await asyncio.create_subprocess_exec(
        *command, env=dict(environment), stdin=DEVNULL, stdout=log, stderr=STDOUT, start_new_session=True
    )


async def end(process: Process, *, grace_s: float) -> bool:
    """Ask the process to end, and kill it with all its children after `grace_s`; whether it came to that."""
    try:
        if process.returncode is None and grace_s > 0:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await process.wait()
    finally:
        outlived_it = process.returncode is None
        # Also what the engine itself started, and also if this is cancelled because time is up.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    return outlived_it


def describe_exit(returncode: int) -> str:
    """Such as `exited with code 3` or `was killed by SIGKILL`."""
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
