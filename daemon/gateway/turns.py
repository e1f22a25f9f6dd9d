"""Requests wait here for their turn under the limits of their tenant and key."""

from __future__ import annotations

import asyncio

from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.daemon.gateway.slot import EngineSlot
from pdmuxd.daemon.httpd.asgi import done_before_gone
from pdmuxd.engine.core.errors import RequestError


class Turns:
    """Requests that wait for their turn; a drain ends these waits."""

    def __init__(self, limiter: Limiter, slot: EngineSlot) -> None:
        self._limiter = limiter
        self._slot = slot
        self._waiting: set[asyncio.Task[None]] = set()

    async def take(self, call: Call, identity: Identity, need: Need) -> bool:
        """Pass the limits of the tenant and the key; False if the client left while it waited for its turn.

        Raises: RequestError 429, or 503 in a drain.
        """
        if self._limiter.enter_now(call.rid, identity, need):
            return True
        waiting = asyncio.create_task(self._limiter.enter(call.rid, identity, need), name="turn")
        self._waiting.add(waiting)
        try:
            is_done = await done_before_gone(waiting, call.receive)
        finally:
            self._waiting.discard(waiting)
        if not is_done:
            return False
        if waiting.cancelled():  # by `end_waits`
            self._slot.serving()
            raise RequestError("no new requests are taken", status=503, code="draining", retry_after_s=1)
        waiting.result()
        return True

    def end_waits(self) -> None:
        """Refuse all that wait."""
        for task in tuple(self._waiting):
            task.cancel()
