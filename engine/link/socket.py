"""The two ends of the engine link: ZeroMQ over a Unix socket.

The daemon binds, the engine connects, and either may be restarted on the same path. The engine's
end never blocks: telemetry waits in a bounded queue and what does not fit is counted; a Hello, the
Acks and what was measured go before it and are never dropped. What was already handed to a connection
that breaks is lost with the daemon that should have read it; nothing else is lost uncounted.
One file, though a long one: what one end promises the other keeps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.link import frames
from pdmuxd.engine.link.measuring import Measured
from pdmuxd.engine.link.messages import (
    Ack,
    EngineStats,
    Hello,
    IterationRecord,
    RequestRecord,
    TenantQueues,
    ToDaemon,
    ToEngine,
)

Telemetry = RequestRecord | IterationRecord | EngineStats | TenantQueues
"""What may be dropped."""
_BATCH = 32
"""Messages that are handed over together, at most."""
_WINDOW = 16
"""Batches inside ZeroMQ at a time: few, so that an Ack does not stand behind much telemetry."""
_RECONNECT_MS = 20
_RECONNECT_MAX_MS = 500
_LINGER_MS = 200


class EngineEnd:
    """The engine's end; usable with and without asyncio, from one thread.

    The Hello given to `send` is remembered and goes first on every connection, with the version of
    the settings acknowledged last, so that a restarted daemon learns whom it is talking to.
    Raises: LinkError if `address` is not an `ipc://` address that can be used.
    """

    def __init__(self, address: str, *, max_queued: int = 10_000) -> None:
        _require_ipc(address)
        self.dropped = 0
        """Telemetry that found the queue full."""
        self.sent = 0
        """Messages handed to a connection."""
        self._max_queued = max_queued
        self._urgent: deque[ToDaemon] = deque()
        self._telemetry: deque[ToDaemon] = deque()
        self._hello: Hello | None = None
        self._connected = False
        self._waiter: asyncio.Future[None] | None = None
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.SNDHWM, _WINDOW)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        self._monitor = self._socket.get_monitor_socket(
            zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        )
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise LinkError(f"cannot use the link {address}: {error}") from error

    @property
    def queued(self) -> int:
        """Messages that wait for a connection, or for the other end to read."""
        return len(self._urgent) + len(self._telemetry)

    def send(self, message: ToDaemon) -> bool:
        """Queue a message; False if it was telemetry and the queue is full (then it is counted)."""
        accepted = True
        if isinstance(message, Hello):
            self._hello = message
            if self._connected:
                self._urgent.append(message)
        elif isinstance(message, Ack | Measured):
            if self._hello is not None and isinstance(message, Ack) and message.error is None:
                self._hello = msgspec.structs.replace(self._hello, settings_version=message.version)
            self._urgent.append(message)
        else:
            accepted = self.post(message)
        self._pump()
        return accepted

    def post(self, message: Telemetry) -> bool:
        """Queue telemetry without a look at the socket; the next other call hands it over.

        For who calls `receive` all the time: what `send` costs beyond this is paid once for many messages,
        their encoding included.
        False if the queue is full (then it is counted).
        """
        if len(self._telemetry) >= self._max_queued:
            self.dropped += 1
            return False
        self._telemetry.append(message)
        return True

    def receive(self) -> ToEngine | None:
        """Take one message, or None if there is none now. Raises: LinkError; the end stays usable."""
        self._pump()
        if not _has_input(self._socket):
            return None
        return frames.decode_to_engine(self._socket.recv_multipart(zmq.NOBLOCK))

    async def wait(self) -> None:
        """Return when `receive` may have something. One waiter at a time."""
        while not self._readable():
            await self._changed(None)

    async def drain(self, timeout_s: float) -> int:
        """Wait until everything queued was handed over; the number of messages left after `timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        self._pump()
        while self.queued and (left_s := deadline_s - loop.time()) > 0:
            await self._changed(left_s)
        return self.queued

    def close(self) -> None:
        """Let go of the socket; what was handed over still goes out for a moment."""
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self._context.term()

    def _pump(self) -> None:
        """Notice connections, hand over what the connection takes, and wake the waiter if due."""
        had_queued = self.queued > 0
        while _has_input(self._monitor):
            event = recv_monitor_message(self._monitor)["event"]
            self._connected = event == zmq.Event.HANDSHAKE_SUCCEEDED
            if self._connected and self._hello is not None:
                self._urgent.appendleft(self._hello)
        if self._connected:
            self._hand_over(self._urgent)
            if not self._urgent:
                self._hand_over(self._telemetry)
        # Any call into the socket may have consumed the edge that its file descriptor signals.
        if self._waiter is not None:
            emptied = had_queued and not self.queued
            if emptied or _has_input(self._socket):
                _resolve(self._waiter)

    def _hand_over(self, queue: deque[ToDaemon]) -> None:
        try:
            while queue:
                batch = list(islice(queue, _BATCH))
                self._socket.send_multipart((frames.HEADER, frames.encode_to_daemon(batch)), zmq.NOBLOCK)
                for _ in batch:
                    queue.popleft()
                self.sent += len(batch)
        except zmq.Again:
            return

    def _readable(self) -> bool:
        self._pump()
        return _has_input(self._socket)

    async def _changed(self, timeout_s: float | None) -> None:
        """Return soon after either socket signals a change (perhaps not a message), or the timeout."""
        if self._waiter is not None:
            raise LinkError("another task is already waiting on this end of the link")
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        descriptors = (int(self._socket.get(zmq.FD)), int(self._monitor.get(zmq.FD)))
        for descriptor in descriptors:
            loop.add_reader(descriptor, _resolve, waiter)
        timer = None if timeout_s is None else loop.call_later(timeout_s, _resolve, waiter)
        try:
            self._pump()
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
        self._pump()


class DaemonEnd:
    """The daemon's end, for asyncio. Settings go to the engine that introduced itself last.

    Raises: LinkError if `address` is not an `ipc://` address that can be bound.
    """

    def __init__(self, address: str) -> None:
        _require_ipc(address)
        self.ignored = 0
        """Messages of an engine that is not (or no longer) the one that introduced itself last."""
        self._engine: bytes | None = None
        self._received: deque[tuple[bytes, ToDaemon]] = deque()
        """With the engine that each is from."""
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            self._socket.bind(address)
            Path(address.removeprefix("ipc://")).chmod(0o600)
        except (zmq.ZMQError, OSError) as error:
            self.close()
            raise LinkError(f"cannot bind the link {address}: {error}") from error

    async def send(self, message: ToEngine) -> None:
        """Send to the engine. Raises: LinkError if none is connected."""
        if self._engine is None:
            raise LinkError("no engine has introduced itself on the link")
        try:
            await self._socket.send_multipart((self._engine, frames.HEADER, frames.encode_to_engine(message)))
        except zmq.ZMQError as error:
            raise LinkError(f"the engine is no longer connected: {error}") from error

    async def receive(self) -> ToDaemon:
        """Wait for the next message. Raises: LinkError for one that cannot be read; the end stays usable."""
        while True:
            while not self._received:
                engine, *received = await self._receive_frames()
                self._received.extend((engine, message) for message in frames.decode_to_daemon(received))
            engine, message = self._received.popleft()
            if isinstance(message, Hello):
                self._engine = engine
            if engine == self._engine:
                return message
            self.ignored += 1

    async def _receive_frames(self) -> Sequence[bytes]:
        return await self._socket.recv_multipart()

    def close(self) -> None:
        """Unbind. Cancel the task that waits in `receive` first."""
        self._socket.close()
        self._context.term()


def _has_input(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _require_ipc(address: str) -> None:
    if not address.startswith("ipc://") or len(address) == len("ipc://"):
        raise LinkError(f"the link's address is {address!r}; it must be ipc:// and a path")
