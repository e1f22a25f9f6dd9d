"""The connections of one listener: how many, whose, which may be closed for a new one, and why others were.

A connection *waits* while it has no request in progress: a new one, one with half a head, one that is kept
alive. When there is no room, the one that has waited longest makes it; one with a request never does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import structlog

from pdmuxd.daemon.httpd.limits import HttpLimits
from pdmuxd.daemon.httpd.peers import Windows
from pdmuxd.daemon.httpd.refusals import EVICTED, FULL, PEER_FULL, Refusal, Style

_FLOOD_S = 1.0

log = structlog.get_logger("pdmuxd.http")


class Connection(Protocol):
    """What is needed of an open connection."""

    peer: str

    def evict(self) -> None:
        """Close it at once; `Connections.leave` is called soon after."""

    def check(self, now_s: float) -> None:
        """Close it if it is over one of its times."""


class Connections:
    """Every `admit` that returns None is matched by one `leave`."""

    def __init__(
        self,
        listener: str,
        limits: HttpLimits,
        *,
        style: Style = "openai",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.listener = listener
        self.limits = limits
        self.style = style
        self.clock = clock
        self.closed: Counter[str] = Counter()
        """Connections that were refused or cut, by cause."""
        self.write_timeout_s = limits.write_timeout_s
        self._by_peer: Counter[str] = Counter()
        self._open: set[Connection] = set()
        self._total = 0
        # Since when each waits; the first has waited longest.
        self._waiting: dict[Connection, float] = {}
        self._waiting_by_peer: dict[str, dict[Connection, float]] = {}
        self._logged = Windows(clock)

    @property
    def count(self) -> int:
        """Connections that are open."""
        return self._total

    def admit(self, peer: str) -> Refusal | None:
        """Count a new connection from `peer`, if need be in place of one that waits; else why not."""
        if self._by_peer[peer] >= self.limits.max_connections_per_peer:
            # Only one that has waited a while: in a flood each would else be accepted and closed at once.
            if not self._evict(self._waiting_by_peer.get(peer, {}), waited_s=_FLOOD_S):
                return PEER_FULL
        elif self._total >= self.limits.max_connections and not self._evict(self._waiting):
            return FULL
        self._total += 1
        self._by_peer[peer] += 1
        return None

    def leave(self, peer: str, connection: Connection | None = None) -> None:
        """A connection from `peer` is closed; `connection` unless it never was one."""
        if connection is not None:
            if connection not in self._open:
                return  # it was evicted, and counted then
            self._open.discard(connection)
            self.set_waiting(connection, waits=False)
        self._total -= 1
        self._by_peer[peer] -= 1
        if self._by_peer[peer] <= 0:
            del self._by_peer[peer]

    def enter(self, connection: Connection) -> None:
        """An admitted connection begins to wait for its first request."""
        self._open.add(connection)
        self.set_waiting(connection, waits=True)

    def set_waiting(self, connection: Connection, *, waits: bool) -> None:
        """Whether a connection has no request in progress."""
        if waits:
            since_s = self._waiting.setdefault(connection, self.clock())
            self._waiting_by_peer.setdefault(connection.peer, {})[connection] = since_s
            return
        self._waiting.pop(connection, None)
        of_peer = self._waiting_by_peer.get(connection.peer)
        if of_peer is not None:
            of_peer.pop(connection, None)
            if not of_peer:
                del self._waiting_by_peer[connection.peer]

    def shed(self, count: int) -> None:
        """Close up to `count` connections that wait: the process is out of descriptors."""
        for _ in range(count):
            if not self._evict(self._waiting):
                return

    def use(self, limits: HttpLimits) -> None:
        """New connections have these limits."""
        self.limits, self.write_timeout_s = limits, limits.write_timeout_s

    def close_idle(self) -> None:
        """Close all connections that wait: another process takes new ones."""
        for connection in tuple(self._waiting):
            self.leave(connection.peer, connection)
            connection.evict()

    def sweep(self) -> None:
        """Close what is over its time."""
        now_s = self.clock()
        for connection in tuple(self._open):
            connection.check(now_s)

    def hurry(self, write_timeout_s: float) -> None:
        """From now on give clients that do not read at most `write_timeout_s`: the daemon wants to stop."""
        self.write_timeout_s = min(self.write_timeout_s, write_timeout_s)

    def note(self, peer: str, cause: str) -> None:
        """Count a connection that was refused or cut, and log the first of an address and cause."""
        self.closed[cause] += 1
        count, before = self._logged.count((peer, cause))
        if count == 1:
            log.warning("connection closed", listener=self.listener, peer=peer, cause=cause, unlogged=before)

    def _evict(self, among: dict[Connection, float], *, waited_s: float = 0.0) -> bool:
        victim = next(iter(among), None)
        if victim is None or self.clock() - among[victim] < waited_s:
            return False
        self.note(victim.peer, EVICTED)
        self.leave(victim.peer, victim)
        victim.evict()
        return True
