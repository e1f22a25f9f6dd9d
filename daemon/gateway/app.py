"""The data plane as one ASGI application: who asks, may they, and where does it go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from pdmuxd.controlplane.directory import DirectorySnapshot, Identity, TenantRecord
from pdmuxd.daemon.gateway import about
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.asgi import (
    BODY_TIMEOUT_S,
    Receive,
    Scope,
    Send,
    read_body,
    send_answer,
    until_gone,
)
from pdmuxd.daemon.gateway.bounds import LARGE_BODY_BYTES, RequestBounds
from pdmuxd.daemon.gateway.cache_key import namespace_of
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.delivery import Delivery
from pdmuxd.daemon.gateway.errors import Answer, answer_for
from pdmuxd.daemon.gateway.exchange import CLIENT_GONE_STATUS, FIRST_BYTE_TIMEOUT_S, End, Exchange
from pdmuxd.daemon.gateway.forecast import FirstTokens
from pdmuxd.daemon.gateway.identity import client_request_id, identify
from pdmuxd.daemon.gateway.limits.limiter import Limiter, key_wait_s
from pdmuxd.daemon.gateway.observer import CallObserver, NobodyWatches
from pdmuxd.daemon.gateway.requests import EngineRequest, check_model, rewrite
from pdmuxd.daemon.gateway.routes import Kind, Route, find_route, model_of
from pdmuxd.daemon.gateway.slot import EngineSlot
from pdmuxd.daemon.gateway.upstream import Upstream
from pdmuxd.daemon.httpd.peers import THROTTLED_DELAY_S, AuthFailures, peer_of
from pdmuxd.daemon.metrics import OTHER_PATH, Metrics
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.engine.core.errors import RequestError

_LOGGED_PATH_LENGTH = 120
_MAX_AUTH_FAILURES = 30
_AUTH_RETRY_AFTER_S = 60
_LAST_WORDS_S = 2.0
"""After the drain limit, how long the error messages to clients may take."""

log = structlog.get_logger("pdmuxd.access")


class Gateway:
    """Call it as an ASGI application; the composition root tells it of tenants and engines."""

    def __init__(
        self,
        *,
        directory: DirectorySnapshot,
        max_body_bytes: int,
        admission: Admission,
        metrics: Metrics,
        bounds: RequestBounds | None = None,
        body_timeout_s: float = BODY_TIMEOUT_S,
        first_byte_timeout_s: float = FIRST_BYTE_TIMEOUT_S,
        engine_wait_s: float = 0.0,
        auth_failures: AuthFailures | None = None,
        observer: CallObserver | None = None,
        name_prefixes: Callable[[bytes, str], tuple[int, ...]] | None = None,
        key_used: Callable[[str], None] = lambda _: None,
        load: Callable[[], about.NodeLoad] = about.no_load,
        tells_load: bool = False,
        limiter: Limiter | None = None,
        first_tokens: FirstTokens | None = None,
    ) -> None:
        self.admission = admission
        self._directory = directory
        admission.expect(len(directory.tenants))
        self._max_body_bytes = max_body_bytes
        self._bounds = bounds or RequestBounds()
        self._body_timeout_s = body_timeout_s
        self._first_byte_timeout_s = first_byte_timeout_s
        self._engine_wait_s = engine_wait_s
        self._auth_failures = auth_failures or AuthFailures(_MAX_AUTH_FAILURES, time.monotonic)
        self._metrics = metrics
        self._observer = observer or NobodyWatches()
        self._name_prefixes = name_prefixes
        self._key_used = key_used
        self._load = load
        self._tells_load = tells_load
        self._slot = EngineSlot(on_abort_error=metrics.abort_failed)
        self._limiter = limiter or Limiter()
        self._limiter.use_tenants(directory.tenants)
        self._first_tokens = first_tokens or FirstTokens()
        self._first_tokens.use_tenants(directory.tenants.values())
        self._exchanges: set[Exchange] = set()
        self._in_turn: set[asyncio.Task[None]] = set()
        """Requests that wait for their turn under a limit."""
        self._one_large_body = asyncio.Lock()

    def use_directory(self, snapshot: DirectorySnapshot) -> None:
        """From now on tenants and keys are those of `snapshot`."""
        self._directory = snapshot
        self.admission.expect(len(snapshot.tenants))
        self._limiter.use_tenants(snapshot.tenants)
        self._first_tokens.use_tenants(snapshot.tenants.values())

    def use_limits(
        self,
        *,
        max_body_bytes: int,
        bounds: RequestBounds,
        body_timeout_s: float,
        first_byte_timeout_s: float,
        engine_wait_s: float,
    ) -> None:
        """From now on requests may be so large and take so long."""
        self._engine_wait_s = engine_wait_s
        self._max_body_bytes, self._bounds = max_body_bytes, bounds
        self._body_timeout_s, self._first_byte_timeout_s = body_timeout_s, first_byte_timeout_s

    def use_engine(self, address: EngineAddress) -> None:
        """From now on requests go to the engine at `address`."""
        self._slot.fill(address)

    def lose_engine(self, state: str) -> None:
        """End what is in flight with an error; new requests are refused because of `state`."""
        self._interrupt_all(End.ENGINE_LOST)
        self._slot.empty(state)

    def suspect_engine(self, is_unresponsive: bool) -> None:
        """Refuse new requests while the engine is silent; those in flight wait for it."""
        self._slot.suspect(is_unresponsive)

    def refuse_new(self) -> None:
        """Answer new requests with 503 from now on, and those that wait for their turn."""
        self._slot.refuse_new()
        self._end_waits()

    def accept_new(self) -> None:
        """End `refuse_new`."""
        self._slot.accept_new()

    async def drain(self, timeout_s: float) -> int:
        """Refuse new requests and wait for those in flight; returns how many `timeout_s` was too short for.

        Those are ended with an error that says so.
        """
        self.refuse_new()
        self._slot.wait_no_more()
        if await self.idle_within(timeout_s):
            return 0
        ended = self._interrupt_all(End.SHUTDOWN)
        if not await self.idle_within(_LAST_WORDS_S):
            log.warning("clients did not take the end of their answers", in_flight=self.admission.in_flight)
        return ended

    async def close(self) -> None:
        """End what is still in flight and close the connections to the engine."""
        self._interrupt_all(End.SHUTDOWN)
        await self._slot.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request (ASGI)."""
        call = Call(receive=receive, send=send, client_id=client_request_id(scope))
        try:
            await self._serve(call, scope)
        except RequestError as error:
            call.status = error.status
            self._metrics.request_refused(call.tenant, error.code)
            if call.tenant and (error.status == 429 or error.status >= 500):
                self._observer.on_refused(call.tenant, error.code)
            await send_answer(send, answer_for(error), extra=call.id_headers)
        except Exception:
            # A defect of ours, and not its client's leaving. The server logs it, and answers 500 if it can.
            call.status, call.end = 500, End.DEFECT
            raise
        finally:
            self._account(call, scope)

    async def _serve(self, call: Call, scope: Scope) -> None:
        route = find_route(scope["method"], scope["path"])
        call.path = route.path
        if route.kind is Kind.HEALTH:
            self._slot.serving()
            call.status = 200
            await send_answer(call.send, Answer(status=200, body=b'{"status":"ok"}'))
            return
        if route.kind is Kind.LOAD_METRICS:
            await self._tell_scraper(call)
            return
        identity = await self._identify(call, scope)
        tenant = identity.tenant
        call.tenant = tenant.name
        self._key_used(identity.key.key_id)
        if route.kind is Kind.ABOUT:
            known = msgspec.json.encode(about.answer(route.path, self._load()))
            call.status = 200
            await send_answer(call.send, Answer(status=200, body=known), extra=call.id_headers)
            return
        if not self._engine_wait_s:
            self._slot.serving()
        if route.kind in (Kind.MODELS, Kind.MODEL):
            upstream = self._slot.serving()
            if route.kind is Kind.MODEL:
                check_model(model_of(scope["path"]), upstream.models)
                route = replace(route, path=scope["path"])
            # No answer of the model, but a connection to the engine all the same.
            self.admission.enter(tenant.name, tenant.max_in_flight, weight=tenant.weight)
            try:
                await self._exchange(call, route, upstream, None)
            finally:
                self.admission.leave(tenant.name)
            return
        self._enter(call, tenant)
        places = 1
        try:
            reading_s = time.monotonic()
            body = await read_body(
                scope, call.receive, max_bytes=self._max_body_bytes, timeout_s=self._body_timeout_s
            )
            if body is None:
                call.end = End.CLIENT_GONE
                return
            read_s = time.monotonic() - reading_s
            request = await self._rewrite(route.kind, body, rid=call.rid, tenant=tenant)
            self._observer.on_read(
                call.rid, is_streamed=request.is_streamed, body_bytes=len(body), read_s=read_s
            )
            if self._name_prefixes is not None:
                prefixes = self._name_prefixes(request.prompt, namespace_of(tenant))
                self._observer.on_prompt(call.rid, prompt_bytes=len(request.prompt), prefixes=prefixes)
            self._grow(tenant, request.outputs)
            places = request.outputs
            if not await self._turn(call, identity, body_bytes=len(body), answers=places):
                call.end = End.CLIENT_GONE
                return
            if request.is_streamed and places == 1:
                arrived_s = call.started_s + read_s
                call.delivery = Delivery(arrived_s=arrived_s, tbt_target_s=tenant.slo.tbt_s)
            new_tokens = self._limiter.expected.input_tokens(tenant.name, len(body), count_cached=False)
            self._first_tokens.admit(call.rid, tenant, new_tokens)
            waits = key_wait_s(identity) if request.is_streamed else []
            await self._send_to_engine(
                call,
                route,
                request,
                first_byte_within_s=waits,
                holds_head=tenant.late_action == "refuse" or tenant.max_wait_ms is not None,
            )
        except RequestError as error:
            call.status = error.status
            raise
        except Exception:
            call.status = 500
            raise
        finally:
            self._first_tokens.ended(call.rid)
            self._limiter.leave(call.rid, was_served=call.status < 400 or call.status == CLIENT_GONE_STATUS)
            self.admission.leave(tenant.name, places)
            delivered = None if call.delivery is None else call.delivery.seen()
            self._observer.on_answered(call.rid, status=call.status, delivered=delivered)

    async def _tell_scraper(self, call: Call) -> None:
        """Raises: RequestError 404 unless `data.load_metrics` is set: who may connect would see the load."""
        if not self._tells_load:
            raise RequestError(
                "the load is not told here (data.load_metrics)", status=404, code="unknown_path"
            )
        call.status = 200
        text = about.metrics_text(self._load())
        await send_answer(call.send, Answer(status=200, body=text, content_type=about.METRICS_TYPE))

    async def _identify(self, call: Call, scope: Scope) -> Identity:
        """Whose key the request has; whoever keeps sending wrong ones is kept waiting.

        Raises: RequestError 401, 403, or 429 instead of 401.
        """
        try:
            return identify(scope, self._directory)
        except RequestError as error:
            if error.status != 401:
                raise
            peer = peer_of(scope.get("client"))
            failure = self._auth_failures.count(peer)
            call.is_logged = failure.is_first
            if failure.is_first:
                log.warning("wrong or missing API key", peer=peer, unlogged=failure.unlogged)
            if not failure.is_throttled:
                raise
            await asyncio.sleep(THROTTLED_DELAY_S)
            raise RequestError(
                "too many wrong keys came from your address; try again in a minute",
                status=429,
                code="too_many_auth_failures",
                retry_after_s=_AUTH_RETRY_AFTER_S,
            ) from None

    def _enter(self, call: Call, tenant: TenantRecord) -> None:
        """Take a place under the limits. Raises: RequestError 429."""
        self.admission.enter(tenant.name, tenant.max_in_flight, weight=tenant.weight)
        self._observer.on_begin(call.rid, tenant=tenant.name, path=call.path)

    def _grow(self, tenant: TenantRecord, outputs: int) -> None:
        """Take a place for each further answer. Raises: RequestError 422 or 429."""
        self.admission.grow(tenant.name, tenant.max_in_flight, outputs=outputs, weight=tenant.weight)

    async def _turn(self, call: Call, identity: Identity, *, body_bytes: int, answers: int) -> bool:
        """Pass the limits of the tenant and the key; False if the client left while it waited for its turn.

        Raises: RequestError 429.
        """
        size = {"body_bytes": body_bytes, "answers": answers}
        if self._limiter.enter_now(call.rid, identity, **size):
            return True
        waiting = asyncio.create_task(self._limiter.enter(call.rid, identity, **size), name="turn")
        return await self._wait_for(waiting, call.receive)

    async def _wait_for(self, waiting: asyncio.Task[None], receive: Receive) -> bool:
        """Wait for a turn; False if the client left before. Raises: RequestError 429, or 503 in a drain."""
        leaving = asyncio.create_task(until_gone(receive), name="leaving")
        self._in_turn.add(waiting)
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._in_turn.discard(waiting)
            for task in (waiting, leaving):
                task.cancel()
            await asyncio.wait((waiting, leaving))
        if waiting.cancelled():
            if leaving.cancelled():  # ended from here
                self._slot.serving()
                raise RequestError("no new requests are taken", status=503, code="draining", retry_after_s=1)
            return False
        waiting.result()
        return True

    def _end_waits(self) -> None:
        for task in tuple(self._in_turn):
            task.cancel()

    async def _rewrite(self, kind: Kind, body: bytes, *, rid: str, tenant: TenantRecord) -> EngineRequest:
        """Check and rewrite a body; a large one in a thread, so that other streams go on meanwhile."""
        work = partial(
            rewrite,
            kind,
            body,
            rid=rid,
            tenant=tenant.name,
            cache_namespace=namespace_of(tenant),
            bounds=self._bounds,
        )
        if len(body) <= LARGE_BODY_BYTES:
            return work()
        async with self._one_large_body:
            return await asyncio.to_thread(work)

    async def _send_to_engine(
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
            self._observer.on_sent(call.rid)
            may_again = lost is None and self._left_to_wait_s(call) > 0
            is_lost = await self._exchange(
                call,
                route,
                upstream,
                request.payload,
                first_byte_within_s=first_byte_within_s,
                may_be_sent_again=may_again,
                holds_head=holds_head,
            )
            if not is_lost:
                return
            lost = upstream

    async def _engine_for(self, call: Call, *, other_than: Upstream | None) -> Upstream | None:
        """The engine that is asked; None if the client left before one served. Raises: RequestError 503."""
        left_s = self._left_to_wait_s(call)
        if left_s <= 0:
            return self._slot.serving()
        waiting = asyncio.create_task(self._slot.serving_within(left_s, other_than=other_than))
        leaving = asyncio.create_task(until_gone(call.receive))
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            for task in (waiting, leaving):
                task.cancel()
            await asyncio.wait((waiting, leaving))

    def _left_to_wait_s(self, call: Call) -> float:
        return call.started_s + self._engine_wait_s - time.monotonic()

    async def _exchange(
        self,
        call: Call,
        route: Route,
        upstream: Upstream,
        payload: bytes | None,
        *,
        first_byte_within_s: Iterable[float] = (),
        may_be_sent_again: bool = False,
        holds_head: bool = False,
    ) -> bool:
        """Relay it; whether it is to be sent again, to another engine."""
        exchange = Exchange(
            rid=call.rid,
            upstream=upstream,
            send=call.send,
            id_headers=call.id_headers,
            on_first_byte=lambda: self._on_first_byte(call),
            abortable=payload is not None,
            first_byte_timeout_s=min([self._first_byte_timeout_s, *first_byte_within_s]),
            may_be_sent_again=may_be_sent_again,
            delivery=call.delivery,
            holds_head=holds_head,
        )
        self._exchanges.add(exchange)
        try:
            await exchange.run(route.method, route.path, payload, call.receive)
        finally:
            self._exchanges.discard(exchange)
            call.status, call.end = exchange.status, exchange.end
        return exchange.is_to_be_sent_again

    def _on_first_byte(self, call: Call) -> None:
        self._metrics.first_byte(time.monotonic() - call.started_s)
        self._first_tokens.begun(call.rid)
        self._observer.on_first_byte(call.rid)

    def _account(self, call: Call, scope: Scope) -> None:
        self._metrics.request_ended(call.tenant, call.path, call.status)
        if call.end is not End.COMPLETE:
            self._metrics.ended_early(call.end)
        if not call.is_logged:
            return
        log.info(
            "request",
            rid=call.rid,
            **({} if call.client_id is None else {"client_id": call.client_id}),
            tenant=call.tenant,
            path=call.path if call.path != OTHER_PATH else scope["path"][:_LOGGED_PATH_LENGTH],
            status=call.status,
            end=call.end.value,
            duration_s=round(time.monotonic() - call.started_s, 4),
        )

    def _interrupt_all(self, end: End) -> int:
        exchanges = tuple(self._exchanges)
        for exchange in exchanges:
            exchange.interrupt(end)
        return len(exchanges)

    async def idle_within(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False if `timeout_s` was too short."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.admission.wait_idle()
        except TimeoutError:
            return False
        return True
