"""Requests on their way to the engine that serves: which engine, once more if it is lost, and how all end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.daemon.gateway.admission import RETRY_AFTER_S
from pdmuxd.daemon.gateway.asgi import done_before_gone
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.exchange import FIRST_BYTE_TIMEOUT_S, End, Exchange
from pdmuxd.daemon.gateway.observer import CallObserver
from pdmuxd.daemon.gateway.requests import EngineRequest, check_model
from pdmuxd.daemon.gateway.routes import Route
from pdmuxd.daemon.gateway.slot import EngineSlot
from pdmuxd.daemon.gateway.upstream import Upstream
from pdmuxd.daemon.supervisor.address import EngineRanges
from pdmuxd.engine.core.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """How long the engine may take to begin an answer, and how long requests wait for an engine."""

    first_byte_s: float = FIRST_BYTE_TIMEOUT_S
    wait_s: float = 0.0
    """0: a request that finds no engine is refused at once."""


class Forwarder:
    """Sends requests to the engine in the slot and relays its answers."""

    def __init__(
        self,
        slot: EngineSlot,
        times: EngineTimes,
        *,
        observer: CallObserver,
        on_first_byte: Callable[[Call], None],
        retry_after_s: Callable[[Call, str], int],
    ) -> None:
        """`retry_after_s`: when a request that the engine refuses for that cause may come again."""
        self.times = times
        self._slot = slot
        self._observer = observer
        self._told_of_first_byte = on_first_byte
        self._retry_after_s = retry_after_s
        self._exchanges: set[Exchange] = set()

    async def send(
        self,
        call: Call,
        route: Route,
        request: EngineRequest,
        *,
        first_byte_within_s: Sequence[float],
        holds_head: bool,
    ) -> None:
        """To the engine that serves, or the next; once more if that is lost before the answer began.

        Only once, since it may be this request that ends engines. Raises: RequestError 503 if none serves.
        """
        lost: Upstream | None = None
        while True:
            upstream = await self._engine_for(call, other_than=lost)
            if upstream is None:
                call.end = End.CLIENT_GONE
                return
            check_model(request.model, upstream.models)
            _check_ranges(request, upstream.address.ranges)
            self._observer.on_sent(call.rid)
            call.trace.sent()
            may_again = lost is None and self._left_to_wait_s(call) > 0
            is_lost = await self.relay(
                call,
                route,
                upstream,
                request.payload,
                first_byte_within_s=first_byte_within_s,
                may_be_sent_again=may_again,
                holds_head=holds_head or call.dialect.token_mark is not None,
                headers=request.headers,
                takes_tokens=request.takes_tokens,
            )
            if not is_lost:
                return
            lost = upstream

    async def relay(
        self,
        call: Call,
        route: Route,
        upstream: Upstream,
        payload: bytes | None = None,
        *,
        first_byte_within_s: Sequence[float] = (),
        may_be_sent_again: bool = False,
        holds_head: bool = False,
        takes_tokens: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        """Relay it; whether it is to be sent again, to another engine.

        Raises: RequestError 503 if the engine refuses the request before anything was sent to the client.
        """
        tokens = upstream.address.tokens if takes_tokens else None
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
            may_be_sent_again=may_be_sent_again,
            delivery=call.delivery,
            headers={**call.trace.headers, **headers} if headers else call.trace.headers,
            dialect=call.dialect,
            holds_head=holds_head,
            merged=None if tokens is None else tokens.open(call.rid),
            retry_after_s=lambda cause: self._retry_after_s(call, cause),
        )
        self._exchanges.add(exchange)
        try:
            await exchange.run(route.method, route.path, payload, call.receive)
        finally:
            self._exchanges.discard(exchange)
            if tokens is not None:
                tokens.leave(call.rid)
            call.status, call.end = exchange.status, exchange.end
        return exchange.is_to_be_sent_again

    def interrupt_all(self, end: End) -> int:
        """End what is in flight because of `end`; returns how many requests that were."""
        exchanges = tuple(self._exchanges)
        for exchange in exchanges:
            exchange.interrupt(end)
        return len(exchanges)

    async def _engine_for(self, call: Call, *, other_than: Upstream | None) -> Upstream | None:
        """The engine that is asked; None if the client left before one served. Raises: RequestError 503."""
        left_s = self._left_to_wait_s(call)
        if left_s <= 0:
            return self._slot.serving()
        waiting = asyncio.create_task(self._slot.serving_within(left_s, other_than=other_than))
        return waiting.result() if await done_before_gone(waiting, call.receive) else None

    def _left_to_wait_s(self, call: Call) -> float:
        return call.started_s + self.times.wait_s - time.monotonic()


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
