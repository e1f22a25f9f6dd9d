"""Tells systemd the daemon's state: sd_notify(3) over the socket that $NOTIFY_SOCKET names.

Without that variable every call does nothing. A message that cannot be sent is counted and logged, never
raised: the daemon can serve without it, and systemd notices a missing message by its own time limits.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import structlog

log = structlog.get_logger("pdmuxd.notify")

_USEC_PER_S = 1_000_000


class Notifier:
    """One connection to the service manager, or none. Close it, or use it in a `with`."""

    def __init__(self, address: str | None, *, watchdog_timeout_s: float | None = None) -> None:
        self.failed = 0
        """Messages that could not be sent."""
        self.watchdog_timeout_s = watchdog_timeout_s
        """After so long without `watchdog()` systemd kills the daemon; None if it does not watch."""
        self._address = _socket_address(address)
        self._socket = _open() if self._address is not None else None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read systemd's variables: NOTIFY_SOCKET, and WATCHDOG_USEC if WATCHDOG_PID is this process."""
        return cls(environ.get("NOTIFY_SOCKET"), watchdog_timeout_s=_watchdog_timeout_s(environ))

    @property
    def connected(self) -> bool:
        """Whether a service manager listens."""
        return self._socket is not None

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often to call `watchdog()`: half the time-out, as sd_watchdog_enabled(3) recommends."""
        return None if self.watchdog_timeout_s is None else self.watchdog_timeout_s / 2.0

    def ready(self, status: str = "") -> None:
        """The daemon serves; `systemctl start` returns."""
        self._send("READY=1", *_status(status))

    def main_process(self, pid: int) -> None:
        """Make the process `pid` the service's main one from now on, and this is one of the others."""
        self._send(f"MAINPID={pid}")
        self.close()

    def stopping(self, status: str = "") -> None:
        """The daemon drains and will end."""
        self._send("STOPPING=1", *_status(status))

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(*_status(text))

    def watchdog(self) -> None:
        """The daemon is alive; call it from the event loop that serves, so that a stuck loop is noticed."""
        self._send("WATCHDOG=1")

    def extend_timeout(self, by_s: float) -> None:
        """Starting or stopping will take `by_s` more seconds than systemd allows for."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(by_s * _USEC_PER_S)}")

    def close(self) -> None:
        """Later calls do nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, *assignments: str) -> None:
        if self._socket is None or self._address is None:
            return
        try:
            self._socket.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            self.failed += 1
            log.warning("systemd was not notified", assignments=assignments, error=str(error))


def _socket_address(address: str | None) -> str | None:
    """A path, or an abstract socket, which is written with `@` and begins with a NUL."""
    if not address:
        return None
    if address.startswith("@"):
        return "\0" + address[1:]
    if not address.startswith("/"):
        log.warning("NOTIFY_SOCKET is neither a path nor an abstract socket; not notifying", address=address)
        return None
    return address


def _open() -> socket.socket:
    # Non-blocking: a full queue of the service manager must not stop the event loop.
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_UNIX, kind)


def _status(text: str) -> tuple[str, ...]:
    """Assignments are lines, so a status has one."""
    line = " ".join(text.split())
    return (f"STATUS={line}",) if line else ()


def _watchdog_timeout_s(environ: Mapping[str, str]) -> float | None:
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (usec.isascii() and usec.isdigit()) or int(usec) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(usec) / _USEC_PER_S
