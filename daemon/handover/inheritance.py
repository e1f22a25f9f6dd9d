"""What a daemon is given by the one before it, or by systemd: listening sockets, and more."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from pdmuxd.engine.core.errors import SettingsError

VARIABLE = "_PDMUXD_HANDOVER"
"""NAME=DESCRIPTOR,...: `channel`, `lock`, and a listening socket for each of SECTIONS."""
SECTIONS = ("data", "admin")
_FIRST_LISTEN_FD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """Open descriptors that are this process's now."""

    sockets: Mapping[str, socket.socket] = field(default_factory=dict)
    """By section."""
    channel: socket.socket | None = None
    """To the daemon whose place is taken; None if there is none."""
    lock: int | None = None
    """Of the state directory, held."""
    giver: str = ""
    """In a few words, for people."""


def inherited(environ: MutableMapping[str, str] = os.environ) -> Inheritance:
    """What was given to this process; the variables that say so are taken away, for they are nobody else's.

    Raises: SettingsError for descriptors of systemd that are no sockets for `data` and `admin`.
    """
    handover = environ.pop(VARIABLE, "")
    activation = {name: environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if handover:
        numbers = {
            name: int(number) for name, _, number in (item.partition("=") for item in handover.split(","))
        }
        for number in numbers.values():
            os.set_inheritable(number, False)
        return Inheritance(
            sockets={name: socket.socket(fileno=numbers[name]) for name in SECTIONS},
            channel=socket.socket(fileno=numbers["channel"]),
            lock=numbers["lock"],
            giver="the daemon before",
        )
    if activation["LISTEN_PID"] == str(os.getpid()):
        return Inheritance(sockets=_activated(activation), giver="systemd")
    return Inheritance()


def _activated(given: Mapping[str, str]) -> dict[str, socket.socket]:
    """systemd's socket activation, sd_listen_fds_with_names(3): FileDescriptorName= names the section."""
    names = given["LISTEN_FDNAMES"].split(":") if given["LISTEN_FDNAMES"] else []
    sockets = {}
    for index in range(int(given["LISTEN_FDS"] or 0)):
        name = names[index] if index < len(names) else "unknown"
        if name not in SECTIONS or name in sockets:
            raise SettingsError(
                f"systemd gives a socket called {name!r}; allowed are one called data and one called admin "
                "(FileDescriptorName= in pdmuxd-data.socket and pdmuxd-admin.socket)"
            )
        descriptor = _FIRST_LISTEN_FD + index
        os.set_inheritable(descriptor, False)
        sockets[name] = socket.socket(fileno=descriptor)
    return sockets
