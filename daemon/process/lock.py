"""One daemon per state directory: a second one would take the first one's engine for an orphan.

The file `lock` says who holds the directory and where that daemon listens, a line each: the process id, the
address of the admin plane, that of the data plane. Only while the lock is held is any of it true.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from pdmuxd.engine.core.errors import PdmuxdError, SettingsError

_RETRIES, _RETRY_S = 5, 0.02
"""`holder_of` takes the lock for an instant; that must not make a start fail."""
_MAX_BYTES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a state directory. The addresses are None if it is no daemon, or an older
    one."""

    pid: str
    admin_url: str | None
    data_url: str | None


@contextlib.contextmanager
def exclusive(state_dir: Path, *, admin_url: str | None = None, data_url: str | None = None) -> Iterator[int]:
    """Hold `state_dir` for this process; the kernel lets go of it however the process ends.

    Yields the descriptor: whoever inherits it holds the directory too.
    Raises: SettingsError if another daemon holds it.
    """
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _take(descriptor):
            pid = _read(descriptor).pid
            raise SettingsError(
                f"state_dir: {state_dir} is in use by another pdmuxd (process {pid}); choose another "
                "directory, or stop that one"
            )
        sign(descriptor, admin_url=admin_url, data_url=data_url)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def inherited(descriptor: int) -> Iterator[int]:
    """Hold what the daemon that started this one holds too; `sign` it when it is this one's alone."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sign(descriptor: int, *, admin_url: str | None, data_url: str | None) -> None:
    """Say that this process holds the directory, and where it listens."""
    lines = (str(os.getpid()), admin_url or "", data_url or "")
    text = "".join(f"{line}\n" for line in lines).encode()
    os.pwrite(descriptor, text, 0)
    os.truncate(descriptor, len(text))


def holder_of(state_dir: Path) -> Holder | None:
    """The holder of `state_dir` now; None if nobody holds it.

    Raises: PdmuxdError if this user may not look.
    """
    path = state_dir / "lock"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PdmuxdError(f"cannot see whether a daemon runs: {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def state_dir_of_listener(url: str) -> Path | None:
    """Find the state directory of the process that listens on the port of `url` on this machine.

    None where no process of this user listens there, or it holds no state directory.
    """
    port = urlsplit(url).port
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr or not connection.pid:
                continue
            if connection.laddr.port == port:
                return _held_by(connection.pid)
    return None


def _held_by(pid: int) -> Path | None:
    for file in psutil.Process(pid).open_files():
        path = Path(file.path)
        if path.name == "lock" and (holder := holder_of(path.parent)) and holder.pid == str(pid):
            return path.parent
    return None


def _take(descriptor: int) -> bool:
    for _ in range(_RETRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_RETRY_S)
    return False


def _read(descriptor: int) -> Holder:
    lines = os.pread(descriptor, _MAX_BYTES, 0).decode(errors="replace").splitlines()
    pid, admin_url, data_url = (*lines, "", "", "")[:3]
    return Holder(pid=pid.strip() or "unknown", admin_url=admin_url or None, data_url=data_url or None)
