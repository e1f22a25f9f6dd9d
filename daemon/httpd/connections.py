"""The connections of one listener: how many, whose, which may be closed for a new one, and why others were.

A connection *waits* while it has no request in progress: a new one, one with half a head, one that is kept
alive. When there is no room, one of those makes it; one with a request never does. First go connections that
sent one wrong key too many, then those that have shown no good key, last those that have. Among these it is
the oldest of the address that has most, so that nobody makes room for a crowd elsewhere. Connections with a
good key are counted apart: no other of their address takes their places.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import structlog

from pdmuxd.daemon.httpd.doors import Door
from pdmuxd.daemon.httpd.late_answers import LateAnswers
from pdmuxd.daemon.httpd.limits import HttpLimits
from pdmuxd.daemon.httpd.peers import THROTTLED_DELAY_S, Windows
from pdmuxd.daemon.httpd.pools import Connection, Pool
from pdmuxd.daemon.httpd.refusals import EVICTED, FULL, PEER_FULL, Refusal, Style

_FLOOD_S = 0.25
"""So long a new connection has for its first head, however many others its address opens: longer than a round
trip, and short enough that 1,024 places let 4,000 connections a second have their turn."""

_SWEPT_AT_ONCE = 32
"""To close one takes about 0.1 ms."""

log = structlog.get_logger("pdmuxd.http")


class Connections:
    """Every `admit` that returns None is matched by one `leave`."""

    def __init__(
        self,
        listener: str,
        limits: HttpLimits,
        *,
        style: Style = "openai",
        clock: Callable[[], float] = time.monotonic,
        door: Door | None = None,
    ) -> None:
        self.door = door
        self.listener = listener
        self.limits = limits
        self.style = style
        self.clock = clock
        self.closed: Counter[str] = Counter()
        """Connections that were refused or cut, by cause."""
        self.came = 0
        """Connections that were admitted so far."""
        self.write_timeout_s = limits.write_timeout_s
        self._by_peer: Counter[str] = Counter()
        self._open: set[Connection] = set()
        """Those that have shown no good key."""
        self._proved: set[Connection] = set()
        self._proved_by_peer: Counter[str] = Counter()
        self._total = 0
        self._penalized, self._waiting, self._proved_waiting = Pool(), Pool(), Pool()
        self._pools = (self._penalized, self._waiting, self._proved_waiting)
        """In the order in which they make room."""
        self._late = LateAnswers(THROTTLED_DELAY_S, clock)
        self._logged = Windows(clock)

    @property
    def count(self) -> int:
        """Connections that are open."""
        return self._total

    def admit(self, peer: str) -> Refusal | None:
        """Count a new connection from `peer`, if need be in place of one that waits; else why not."""
        limits = self.limits
        if limits.max_connections_per_peer <= self._by_peer[peer] < limits.max_connections:
            # Only one that has waited a while: in a flood each would else be accepted and closed at once.
            if not (
                self._evict(self._penalized.oldest(peer))
                or self._evict(self._waiting.oldest(peer), waited_s=_FLOOD_S)
            ):
                return PEER_FULL
        elif self._total >= limits.most and not self._evict_any():
            return FULL
        self.came += 1
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
        if connection is not None and connection in self._proved:
            self._proved.discard(connection)
            _take_off(self._proved_by_peer, peer)
        else:
            _take_off(self._by_peer, peer)

    def enter(self, connection: Connection) -> None:
        """An admitted connection begins to wait for its first request."""
        self._open.add(connection)
        if self.door is not None and self.door.is_trusted(connection.peer):
            self.prove(connection)
        self.set_waiting(connection, waits=True)

    def prove(self, connection: Connection) -> None:
        """A connection has shown a good key. An address may have as many of these beside its others."""
        peer = connection.peer
        is_allowed = self._proved_by_peer[peer] < self.limits.max_connections_per_peer
        if connection in self._proved or connection not in self._open:
            return
        if is_allowed or (self.door is not None and self.door.is_trusted(peer)):
            self._proved.add(connection)
            self._proved_by_peer[peer] += 1
            _take_off(self._by_peer, peer)

    def penalize(self, connection: Connection, answer: Callable[[], None]) -> None:
        """A connection sent one wrong key too many: until its late `answer` it is the first to make room."""
        self.set_waiting(connection, waits=False)
        self._penalized.add(connection, self.clock())
        self._late.add(connection, answer)

    def set_waiting(self, connection: Connection, *, waits: bool) -> None:
        if waits:
            pool = self._proved_waiting if connection in self._proved else self._waiting
            pool.add(connection, self.clock())
            return
        self._late.discard(connection)
        for pool in self._pools:
            pool.discard(connection)

    def shed(self, count: int) -> None:
        """Close up to `count` connections that wait: the process is out of descriptors."""
        for _ in range(count):
            if not self._evict_any():
                return

    def use(self, limits: HttpLimits) -> None:
        self.limits, self.write_timeout_s = limits, limits.write_timeout_s

    def close_idle(self) -> None:
        """Close all connections that wait: another process takes new ones."""
        for connection in [each for pool in self._pools for each in pool]:
            self.leave(connection.peer, connection)
            connection.evict()

    async def sweep(self) -> None:
        """Close what is over its time, some in each turn of the loop: thousands at once would stop it."""
        for count, connection in enumerate(tuple(self._open), 1):
            connection.check(self.clock())
            if count % _SWEPT_AT_ONCE == 0:
                await asyncio.sleep(0)

    def hurry(self, write_timeout_s: float) -> None:
        """Give clients that do not read from now on at most `write_timeout_s`: the daemon wants to stop."""
        self.write_timeout_s = min(self.write_timeout_s, write_timeout_s)

    def note(self, peer: str, cause: str) -> None:
        """Count a connection that was refused or cut, and log the first of an address and cause."""
        self.closed[cause] += 1
        count, before = self._logged.count((peer, cause))
        if count == 1:
            log.warning("connection closed", listener=self.listener, peer=peer, cause=cause, unlogged=before)

    def _evict_any(self) -> bool:
        return any(self._evict(pool.oldest()) for pool in self._pools)

    def _evict(self, found: tuple[Connection, float] | None, *, waited_s: float = 0.0) -> bool:
        if found is None or self.clock() - found[1] < waited_s:
            return False
        victim = found[0]
        self.note(victim.peer, EVICTED)
        self.leave(victim.peer, victim)
        victim.evict()
        return True


def _take_off(counter: Counter[str], peer: str) -> None:
    counter[peer] -= 1
    if counter[peer] <= 0:
        del counter[peer]
