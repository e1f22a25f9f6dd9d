"""The new daemon's side: takes the place of the one that started it, or leaves everything as it was."""

from __future__ import annotations

import asyncio
import contextlib
from importlib import metadata
from typing import TypeVar

from pdmuxd.daemon.handover.channel import Channel, Done, Offer, Ready, Refused, Serving, Stop, Yours
from pdmuxd.daemon.supervisor.handle import EngineHandle
from pdmuxd.engine.core.errors import EngineError, SettingsError
from pdmuxd.engine.link.messages import LINK_PROTOCOL

_OFFER_TIMEOUT_S = 10.0
_GIVE_TIMEOUT_S = 30.0

_MessageT = TypeVar("_MessageT", Offer, Yours, Done)


class Successor:
    """Asks for everything in turn. Raises: EngineError whenever the old daemon has ended or calls it off."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._is_done = False

    async def accept_offer(self) -> Offer:
        """What is to be taken over. Raises: SettingsError if this version cannot."""
        offer = await self._expect(Offer, _OFFER_TIMEOUT_S)
        if offer.link_protocol != LINK_PROTOCOL:
            raise SettingsError(
                f"pdmuxd {metadata.version('pdmuxd')} speaks link protocol {LINK_PROTOCOL}, the engine that "
                f"serves {offer.link_protocol}: it cannot be taken over; stop and start the daemon instead"
            )
        return offer

    async def take_engine(self) -> EngineHandle:
        """Say that all else is there, and wait for the engine."""
        await self._channel.send(Ready(version=metadata.version("pdmuxd")))
        return (await self._expect(Yours, _GIVE_TIMEOUT_S)).engine

    async def take_place(self) -> None:
        """The engine answers and connections are accepted here: the old daemon may stop accepting."""
        await self._channel.send(Serving())
        await self._expect(Done, _GIVE_TIMEOUT_S)
        self._is_done = True

    async def refuse(self, reason: str) -> None:
        """Say why this daemon ends, unless it has taken the place already."""
        if not self._is_done:
            with contextlib.suppress(EngineError):
                await self._channel.send(Refused(reason=reason))

    async def end_predecessor(self, timeout_s: float) -> None:
        """If the old daemon still has connections, have it end them as this one does, and wait for it."""
        try:
            await self._channel.send(Stop())
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._channel.receive()
        except (EngineError, TimeoutError):
            return

    async def _expect(self, kind: type[_MessageT], timeout_s: float) -> _MessageT:
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._channel.receive()
        except TimeoutError:
            raise EngineError("the daemon whose place is to be taken does not answer") from None
        if not isinstance(message, kind):
            raise EngineError(f"the daemon whose place is to be taken says {message!r}")
        return message
