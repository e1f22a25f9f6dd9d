"""Takes connections from a listening socket, one by one, while there is room for them.

An event loop's own server takes all that wait at once, and hands out descriptors until there are none: then
nothing else in the process can open one, be it a health probe or an engine's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.peers import peer_of
from pdmuxd.daemon.httpd.refusals import Refusal, render

_PER_TURN = 8
"""Connections that are accepted at once; then the event loop does its other work before the next."""
_SHED = 16
_PAUSE_S = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

MakeProtocol = Callable[[str], asyncio.Protocol]
"""From a peer to the protocol of its new connection."""


class Acceptor:
    """Accepts between `start` and `close`. Works in the running event loop."""

    def __init__(self, listener: socket.socket, connections: Connections, make: MakeProtocol) -> None:
        self._listener = listener
        self._connections = connections
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to accept, and to look after what was accepted."""
        self._loop.add_reader(self._listener, self._on_readable)
        self._sweeper = asyncio.create_task(self._sweep(), name=f"sweep-{self._connections.listener}")

    def close(self) -> None:
        """Accept no more; open connections stay. uvicorn's name for it."""
        self._loop.remove_reader(self._listener)
        if self._paused is not None:
            self._paused.cancel()

    async def stop_sweeping(self) -> None:
        """The last connections are closed."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait((self._sweeper,))

    def _on_readable(self) -> None:
        for _ in range(_PER_TURN):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._out_of_descriptors()
                    return
                continue  # the client was gone before it was accepted
            peer = peer_of(address)
            refusal = self._connections.admit(peer)
            if refusal is None:
                self._open(accepted, peer)
            else:
                self._refuse(accepted, peer, refusal)

    def _open(self, accepted: socket.socket, peer: str) -> None:
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.create_task(self._connect(accepted, peer))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, accepted: socket.socket, peer: str) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(peer), accepted)
        except OSError:
            accepted.close()
            self._connections.leave(peer)

    def _refuse(self, accepted: socket.socket, peer: str, refusal: Refusal) -> None:
        self._connections.note(peer, refusal.cause)
        accepted.setblocking(False)
        with contextlib.suppress(OSError), accepted:
            accepted.send(render(refusal, self._connections.style))

    def _out_of_descriptors(self) -> None:
        """Close waiting connections and pause: the rest of the daemon gets their descriptors first."""
        self._connections.note("-", "no_descriptors")
        self._connections.shed(_SHED)
        self._loop.remove_reader(self._listener)
        self._paused = self._loop.call_later(
            _PAUSE_S, lambda: self._loop.add_reader(self._listener, self._on_readable)
        )

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._connections.limits.sweep_period_s)
            await self._connections.sweep()
