"""The engine that a killed daemon left behind: remembered in a file, recognised, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import msgspec

from pdmuxd.daemon.process.state_file import replace_file
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link import procfs, token_frames

_EXIT_TIMEOUT_S = 30.0
_ARGUMENTS_PERIOD_S = 0.001


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which process the engine is; three facts, because process ids are given again."""

    pid: int
    start_ticks: int
    command: tuple[str, ...]
    socket: str
    """The link's socket, which a killed daemon leaves behind as well."""

    def is_running(self) -> bool:
        """Whether that very process still runs."""
        return (
            procfs.start_ticks(self.pid) == self.start_ticks and procfs.command_line(self.pid) == self.command
        )


async def remember(path: Path, pid: int, socket_path: Path) -> None:
    """Write down the engine that was just started; nothing is written if it has already ended."""
    # Whoever starts a process may be back before the kernel has put its arguments in place.
    while not (command := procfs.command_line(pid)) and procfs.is_running(pid):  # noqa: ASYNC110
        await asyncio.sleep(_ARGUMENTS_PERIOD_S)
    ticks = procfs.start_ticks(pid)
    if ticks is None or not command:
        return
    record = EngineRecord(pid=pid, start_ticks=ticks, command=command, socket=str(socket_path))
    replace_file(path, msgspec.json.encode(record))


def forget(path: Path) -> None:
    """The engine has ended."""
    path.unlink(missing_ok=True)


def remove_stale_sockets(runtime_dir: Path) -> int:
    """Remove the links' sockets that daemons left behind which were killed; returns how many.

    One on which somebody listens stays: it may be another daemon's, if `runtime_dir` was given to both.
    """
    removed = 0
    for path in filter(Path.is_socket, runtime_dir.glob("engine-*.sock")):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe, contextlib.suppress(OSError):
            probe.setblocking(False)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                token_frames.remove_files(f"ipc://{path}")
                removed += 1
    return removed


async def end_orphan(path: Path) -> int | None:
    """Kill the engine that `path` remembers, with its children; returns its pid, None if there is none.

    Nobody can use it: its clients were connected through the daemon that died.
    Raises: EngineError if it does not go away.
    """
    record = _recall(path)
    if record is None:
        forget(path)
        return None
    try:
        pidfd = os.pidfd_open(record.pid)
    except ProcessLookupError:
        forget(path)
        return None
    try:
        # The descriptor is taken first: it stays with the process that was looked at.
        if not record.is_running():
            return None
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(record.pid, signal.SIGKILL)
        await _exited(pidfd, record.pid)
    finally:
        os.close(pidfd)
        forget(path)
    return record.pid


def _recall(path: Path) -> EngineRecord | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=EngineRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        # A file that cannot be read names nobody; killing by guess would be worse than an orphan, which
        # ends by itself soon after its parent.
        return None
    Path(record.socket).unlink(missing_ok=True)
    token_frames.remove_files(f"ipc://{record.socket}")
    return record


async def _exited(pidfd: int, pid: int) -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(pidfd, gone.set)
    try:
        async with asyncio.timeout(_EXIT_TIMEOUT_S):
            await gone.wait()
    except TimeoutError:
        raise EngineError(f"the engine {pid} that an earlier daemon left does not end") from None
    finally:
        loop.remove_reader(pidfd)
