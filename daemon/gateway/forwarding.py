"""Requests on their way to the engine that serves: which engine, and how all end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.daemon.gateway.admission import RETRY_AFTER_S
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.exchange import FIRST_BYTE_TIMEOUT_S, End, Exchange
from pdmuxd.daemon.gateway.observer import CallObserver
from pdmuxd.daemon.gateway.quarantine import Quarantine
from pdmuxd.daemon.gateway.requests import EngineRequest, check_model
from pdmuxd.daemon.gateway.routes import Route
from pdmuxd.daemon.gateway.slot import EngineSlot
from pdmuxd.daemon.gateway.upstream import Upstream
from pdmuxd.daemon.httpd.asgi import done_before_gone
from pdmuxd.daemon.supervisor.address import EngineRanges
from pdmuxd.daemon.tokens.merge import MergedStream
from pdmuxd.daemon.tokens.plain import Direct
from pdmuxd.daemon.tokens.receiver import TokenReceiver
from pdmuxd.engine.core.errors import RequestError

_KNOWN_WITHIN_S = 2.0
"""The supervisor sees the end of an engine at once, and silence after so long: a connection that ends while
the engine goes on says nothing about others."""
_LOOKS_EVERY_S = 0.05
"""The next engine takes seconds to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """How long the engine may take to begin an answer, and how long requests wait for an engine."""

    first_byte_s: float = FIRST_BYTE_TIMEOUT_S
    wait_s: float = 0.0
    """0: a request that finds no engine is refused at once."""
    quarantine_s: float = 600.0
    """How long a request that was there at two deaths of engines is refused; 0: never."""


class Forwarder:
    """Sends requests to the engine in the slot and relays its answers."""

    def __init__(
        self,
        slot: EngineSlot,
        times: EngineTimes,
        *,
        quarantine: Quarantine,
        observer: CallObserver,
        on_first_byte: Callable[[Call], None],
        retry_after_s: Callable[[Call, str], int],
    ) -> None:
        """`retry_after_s`: when a request that the engine refuses for that cause may come again."""
        self.times = times
        self._slot = slot
        self._quarantine = quarantine
        self._observer = observer
        self._told_of_first_byte = on_first_byte
        self._retry_after_s = retry_after_s
        self._exchanges: dict[Exchange, str] = {}
        """Each with its tenant."""

    async def send(
        self,
        call: Call,
        route: Route,
        request: EngineRequest,
        *,
        first_byte_within_s: Sequence[float],
        holds_head: bool,
    ) -> None:
        """Send to the engine that serves, or the next one that does. Raises: RequestError 503 if none serves.

        A request that was in an engine when it ended goes to no other, since it may be what ends engines;
        unless another request that was there is known to be, the client had nothing of its answer, and the
        time in which it must begin is not over.
        """
        answer_within_s = min([self.times.first_byte_s, *first_byte_within_s])
        lost: Exchange | None = None
        while True:
            try:
                upstream = await self._engine_for(call, 0.0 if lost is None else answer_within_s)
            except RequestError:
                if lost is None:
                    raise
                return await _tell_lost(call, lost)
            if upstream is None:
                call.end = End.CLIENT_GONE
                return None
            try:
                check_model(request.model, upstream.models)
                _check_ranges(request, upstream.address.ranges)
                self._quarantine.check(tenant=call.tenant, payload=request.payload, rid=call.rid)
                self._observer.on_sent(call.rid)
                call.trace.sent()
                lost = await self.relay(
                    call,
                    route,
                    upstream,
                    request.payload,
                    first_byte_within_s=first_byte_within_s,
                    holds_head=holds_head or call.dialect.token_mark is not None,
                    headers=request.headers,
                    direct=request.direct,
                    waits_for_another=self._left_to_wait_s(call, answer_within_s) > 0,
                    head_sent=lost is not None and lost.head_sent,
                )
            except RequestError as error:
                if lost is None or not lost.head_sent:
                    raise
                call.error = error.code
                await lost.say_last(str(error), error.code)
                return None
            if not lost.may_go_elsewhere:
                return None
            if not await self._is_cleared(call, upstream, request.payload, answer_within_s):
                return await _tell_lost(call, lost)

    async def relay(
        self,
        call: Call,
        route: Route,
        upstream: Upstream,
        payload: bytes | None = None,
        *,
        first_byte_within_s: Sequence[float] = (),
        holds_head: bool = False,
        direct: Direct | None = None,
        headers: Mapping[str, str] | None = None,
        waits_for_another: bool = False,
        head_sent: bool = False,
    ) -> Exchange:
        """Relay it; how that went.

        Raises: RequestError if the engine refuses the request before anything was sent to the client.
        """
        tokens = None if direct is None else upstream.address.tokens
        if call.token_path is not None:
            call.token_path = "http" if tokens is None else "direct"
        exchange = Exchange(
            rid=call.rid,
            upstream=upstream,
            send=call.send,
            push=call.push,
            id_headers=call.id_headers,
            on_first_byte=lambda: self._told_of_first_byte(call),
            abortable=payload is not None,
            first_byte_timeout_s=min([self.times.first_byte_s, *first_byte_within_s]),
            delivery=call.delivery,
            headers={**call.trace.headers, **headers} if headers else call.trace.headers,
            dialect=call.dialect,
            holds_head=holds_head,
            merged=None if tokens is None or direct is None else _opened(tokens, call, direct),
            retry_after_s=lambda cause: self._retry_after_s(call, cause),
            waits_for_another=waits_for_another,
            head_sent=head_sent,
        )
        self._exchanges[exchange] = call.tenant
        try:
            await exchange.run(route.method, route.path, payload, call.receive)
        finally:
            del self._exchanges[exchange]
            if tokens is not None:
                tokens.leave(call.rid)
            call.status, call.end = exchange.status, exchange.end
            if payload is not None:
                self._note_end(call, upstream, payload, exchange)
        return exchange

    async def _is_cleared(self, call: Call, lost: Upstream, payload: bytes, answer_within_s: float) -> bool:
        """Wait until all is known that the lost engine had, and ask whether another request ends engines."""
        end_s = time.monotonic() + min(_KNOWN_WITHIN_S, self._left_to_wait_s(call, answer_within_s))
        while self._quarantine.may_clear(lost) and time.monotonic() < end_s:
            if self._slot.upstream is not lost and all(each.upstream is not lost for each in self._exchanges):
                return self._quarantine.clears(lost, tenant=call.tenant, payload=payload, rid=call.rid)
            await asyncio.sleep(_LOOKS_EVERY_S)
        return False

    def _note_end(self, call: Call, upstream: Upstream, payload: bytes, exchange: Exchange) -> None:
        if exchange.end is End.ENGINE_LOST:
            self._quarantine.in_flight(
                upstream, tenant=call.tenant, payload=payload, rid=call.rid, begun_s=exchange.begun_s
            )
        elif exchange.end is End.CLIENT_GONE and exchange.begun_s is None:
            self._quarantine.client_left(upstream, tenant=call.tenant, payload=payload, rid=call.rid)

    def in_flight(self) -> list[tuple[str, str]]:
        """The id and the tenant of each request that an engine has."""
        return [(exchange.rid, tenant) for exchange, tenant in self._exchanges.items()]

    def interrupt_all(self, end: End) -> int:
        """End what is in flight because of `end`; returns how many requests that were."""
        exchanges = tuple(self._exchanges)
        for exchange in exchanges:
            exchange.interrupt(end)
        return len(exchanges)

    async def _engine_for(self, call: Call, within_s: float) -> Upstream | None:
        """The engine that is asked; None if the client left before one served. Raises: RequestError 503."""
        left_s = self._left_to_wait_s(call, within_s)
        if left_s <= 0:
            return self._slot.serving()
        waiting = asyncio.create_task(self._slot.serving_within(left_s))
        return waiting.result() if await done_before_gone(waiting, call.receive) else None

    def _left_to_wait_s(self, call: Call, within_s: float) -> float:
        """Seconds until an engine must serve: `within_s` from the begin of the call, or as long as all may
        wait."""
        return call.started_s + max(self.times.wait_s, within_s) - time.monotonic()


async def _tell_lost(call: Call, lost: Exchange) -> None:
    await lost.finish_early()
    call.status = lost.status


def _check_ranges(request: EngineRequest, ranges: EngineRanges) -> None:
    """A request may have come before its engine did: no engine gets one that was not checked for it.

    Raises: RequestError 400 naming a field that this engine does not take; 503 if it was checked for another
    engine and its fields are not at hand any more.
    """
    if request.check is not None:
        request.check(ranges)
    elif request.ranges != ranges:
        raise RequestError(
            "the engine was replaced by another one while this request waited; send it again",
            status=503,
            code="engine_replaced",
            retry_after_s=RETRY_AFTER_S,
        )


def _opened(tokens: TokenReceiver, call: Call, direct: Direct) -> MergedStream:
    target_s = 0.0 if call.delivery is None else call.delivery.tbt_target_s
    return tokens.open(call.rid, direct, tbt_target_s=target_s)
