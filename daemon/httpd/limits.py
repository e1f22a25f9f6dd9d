"""What connections may cost, and how many of them the descriptors of the process allow."""

from __future__ import annotations

import resource
from dataclasses import dataclass

OWN_DESCRIPTORS = 96
"""For the database, logs, the link, and starting an engine; an idle daemon has 27 open."""
MAX_WAITING = 6144
"""Connections to the admin port that may wait beside its places: a flood of 5,000, and who is honest. Each
costs a descriptor and at most 20 KiB."""
MIN_ADMIN_CONNECTIONS = 32
MIN_DATA_CONNECTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one listener; the settings of `[http]`, and the listener's own numbers of connections."""

    max_connections: int = 4096
    max_waiting: int = 0
    """Connections beside those, while they wait: none of them has a request in progress."""
    max_connections_per_peer: int = 1024
    max_header_bytes: int = 32 * 1024
    max_headers: int = 100
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    keep_alive_s: float = 65.0
    write_timeout_s: float = 20.0

    @property
    def most(self) -> int:
        """Connections at once, those that only wait included."""
        return self.max_connections + self.max_waiting

    @property
    def sweep_period_s(self) -> float:
        """How often connections are looked at: often enough to keep the shortest limit within a quarter."""
        shortest_s = min(self.header_timeout_s, self.body_timeout_s, self.write_timeout_s)
        return min(1.0, shortest_s / 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBudget:
    """How many connections each listener may have at once."""

    data: int
    admin: int
    admin_waiting: int
    """Beside those, connections to the admin port that wait."""


def connection_budget(descriptors: int, *, data: int, admin: int) -> ConnectionBudget:
    """Take as many of the wanted connections as `descriptors` allow.

    A connection of the data plane may need a second one, to the engine. What the daemon needs for itself and
    for the admin plane is set aside first, so that clients cannot take it. What is left then is for waiting.
    """
    admin = min(admin, max(MIN_ADMIN_CONNECTIONS, descriptors // 8))
    left = descriptors - OWN_DESCRIPTORS - admin
    data = min(data, max(MIN_DATA_CONNECTIONS, left // 2))
    return ConnectionBudget(data=data, admin=admin, admin_waiting=min(MAX_WAITING, max(0, left - 2 * data)))


def raise_descriptor_limit(*, data: int, admin: int) -> int:
    """Raise the soft limit of open files to what the wanted connections need; what is then in force.

    Only up to the hard limit, which is the operator's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OWN_DESCRIPTORS + admin + 2 * data + MAX_WAITING
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    soft = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
