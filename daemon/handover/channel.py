"""What two daemons say to each other while one takes the other's place: lines of JSON over a socket pair.

   old                               new
|-- Offer ------------------------>|  checks versions, settings, database
|<------------- Ready or Refused --|
|-- Yours (engine) --------------->|  the old one has let go of the link
|<----------------------- Serving--|  the engine has answered; the new one accepts connections
|-- Done ------------------------->|  the old one accepts no more
|<--------------------------- Stop-|  only if the new one is told to stop before the old one has ended
"""

from __future__ import annotations

import asyncio
import socket

import msgspec

from pdmuxd.daemon.supervisor.handle import EngineHandle
from pdmuxd.engine.core.errors import EngineError

_MAX_LINE_BYTES = 2**20


class Offer(msgspec.Struct, frozen=True, kw_only=True, tag="offer"):
    """What is to be taken over."""

    version: str
    link_protocol: int
    migrate: bool
    """Whether the new daemon may bring the database to its own schema."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Everything but the engine is there."""

    version: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The new daemon ends."""

    reason: str


class Yours(msgspec.Struct, frozen=True, kw_only=True, tag="yours"):
    """The engine is nobody's now."""

    engine: EngineHandle


class Serving(msgspec.Struct, frozen=True, kw_only=True, tag="serving"):
    """The new daemon serves."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The new daemon is the daemon."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End soon, as after SIGTERM."""


Message = Offer | Ready | Refused | Yours | Serving | Done | Stop
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class Channel:
    """One end. Raises: EngineError if the other end has gone, or is not understood."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, own: socket.socket) -> Channel:
        own.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=own, limit=_MAX_LINE_BYTES))

    async def send(self, message: Message) -> None:
        try:
            self._writer.write(msgspec.json.encode(message) + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise EngineError("the other daemon has ended") from error

    async def receive(self) -> Message:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise EngineError(f"the other daemon cannot be understood: {error}") from error
        if not line:
            raise EngineError("the other daemon has ended")
        try:
            return _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise EngineError(f"the other daemon cannot be understood: {error}") from error

    def close(self) -> None:
        """The other end sees it."""
        self._writer.close()
