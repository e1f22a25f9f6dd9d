"""Connections that may be closed for others, by the address that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Connection(Protocol):
    """What is needed of an open connection."""

    peer: str

    def evict(self) -> None:
        """Close it at once; `Connections.leave` is called soon after."""

    def check(self, now_s: float) -> None:
        """Close it if it is over one of its times."""


class Pool:
    """Each with the time since when it is here. Every method takes constant time, however many addresses."""

    def __init__(self) -> None:
        self._by_peer: dict[str, dict[Connection, float]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        """Addresses by how many of their connections are here."""
        self._largest = 0

    def __iter__(self) -> Iterator[Connection]:
        for of_peer in self._by_peer.values():
            yield from of_peer

    def add(self, connection: Connection, since_s: float) -> None:
        """Take one in; one that is here keeps its time."""
        of_peer = self._by_peer.setdefault(connection.peer, {})
        if connection not in of_peer:
            of_peer[connection] = since_s
            self._resize(connection.peer, len(of_peer) - 1, len(of_peer))

    def discard(self, connection: Connection) -> None:
        of_peer = self._by_peer.get(connection.peer, {})
        if of_peer.pop(connection, None) is not None:
            self._resize(connection.peer, len(of_peer) + 1, len(of_peer))
            if not of_peer:
                del self._by_peer[connection.peer]

    def oldest(self, peer: str | None = None) -> tuple[Connection, float] | None:
        """The oldest and since when it is here: of an address, or of the one that has most here."""
        if peer is None:
            peer = next(iter(self._by_size.get(self._largest, ())), "")
        return next(iter(self._by_peer.get(peer, {}).items()), None)

    def _resize(self, peer: str, before: int, after: int) -> None:
        if before:
            same = self._by_size[before]
            del same[peer]
            if not same:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[peer] = None
        # One connection at a time comes or goes: the largest size changes by one.
        if after > self._largest or (self._largest and self._largest not in self._by_size):
            self._largest = after
