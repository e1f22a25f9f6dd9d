"""The data plane as one ASGI application: who asks, may they, and where does it go.

The way of a request, each step in a file of its own: `routes.py` (what is asked), `authentication.py` (who
asks), `admission.py` (is there a place), `intake.py` (its body, rewritten), `turns.py` (the limits of tenant
and key), `forecast.py` (can its promise be kept), `forwarding.py` (which engine), `exchange.py` (the answer).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
import structlog

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange
from pdmuxd.controlplane.telemetry.expected_tokens import ExpectedTokens
from pdmuxd.controlplane.tenants.records import Identity, TenantRecord
from pdmuxd.daemon.gateway import about
from pdmuxd.daemon.gateway.admission import RETRY_AFTER_S, Admission
from pdmuxd.daemon.gateway.authentication import Authenticator
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.delivery import Delivery
from pdmuxd.daemon.gateway.dialects import ANTHROPIC
from pdmuxd.daemon.gateway.errors import Answer, send_answer
from pdmuxd.daemon.gateway.exchange import CLIENT_GONE_STATUS, End
from pdmuxd.daemon.gateway.forecast import FirstTokens
from pdmuxd.daemon.gateway.forwarding import EngineTimes, Forwarder
from pdmuxd.daemon.gateway.identity import client_request_id
from pdmuxd.daemon.gateway.intake import BodyLimits, Intake
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.refusals import key_wait_s
from pdmuxd.daemon.gateway.limits.reserve import most_output_tokens, need_of
from pdmuxd.daemon.gateway.observer import CallObserver, NobodyWatches
from pdmuxd.daemon.gateway.one_by_one import OneByOne
from pdmuxd.daemon.gateway.openapi import document
from pdmuxd.daemon.gateway.quarantine import Quarantine
from pdmuxd.daemon.gateway.requests import check_model
from pdmuxd.daemon.gateway.routes import (
    ONE_MODEL,
    OPERATIONS,
    TOKENIZING,
    Kind,
    Route,
    dialect_of,
    find_route,
    model_of,
)
from pdmuxd.daemon.gateway.sessions import Sessions
from pdmuxd.daemon.gateway.sglang_series import SglangSeries
from pdmuxd.daemon.gateway.slo_headers import targets_of
from pdmuxd.daemon.gateway.slot import EngineSlot
from pdmuxd.daemon.gateway.tokenizing import Tokenizing
from pdmuxd.daemon.gateway.tracing import NoTracer, Tracer
from pdmuxd.daemon.gateway.turns import Turns
from pdmuxd.daemon.httpd.asgi import Receive, Scope, Send
from pdmuxd.daemon.httpd.peers import AuthFailures
from pdmuxd.daemon.httpd.pushing import push_of
from pdmuxd.daemon.httpd.refusals import OUT_OF_MEMORY
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.daemon.metrics import OTHER_PATH, Metrics
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.engine.core.errors import RequestError

_LOGGED_PATH_LENGTH = 120
_LAST_WORDS_S = 2.0
"""After the drain limit, how long the error messages to clients may take."""

log = structlog.get_logger("pdmuxd.access")


class Gateway:
    """Call it as an ASGI application; the composition root tells it of tenants and engines."""

    def __init__(
        self,
        *,
        directory: DirectorySnapshot,
        limits: BodyLimits,
        admission: Admission,
        metrics: Metrics,
        times: EngineTimes | None = None,
        auth_failures: AuthFailures | None = None,
        observer: CallObserver | None = None,
        name_prefixes: Callable[[bytes, str], tuple[int, ...]] | None = None,
        key_used: Callable[[str], None] = lambda _: None,
        load: Callable[[], about.NodeLoad] = about.no_load,
        tells_load: bool = False,
        limiter: Limiter | None = None,
        expected: ExpectedTokens | None = None,
        first_tokens: FirstTokens | None = None,
        tracer: Tracer | None = None,
        trusted: TrustedPeers | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.admission = admission
        self._metrics = metrics
        self._observer = observer or NobodyWatches()
        self._key_used = key_used
        self._tracer = tracer or NoTracer()
        self._trusted = trusted or TrustedPeers()
        self._sessions = Sessions()
        self._load = load
        self._tells_load = tells_load
        self._series = SglangSeries()
        self._limiter = limiter or Limiter()
        self._expected = expected or ExpectedTokens()
        self._first_tokens = first_tokens or FirstTokens()
        self._authenticator = Authenticator(directory, auth_failures, self._trusted)
        self._slot = EngineSlot(on_abort_error=metrics.abort_failed)
        self._intake = Intake(
            limits,
            observer=self._observer,
            name_prefixes=name_prefixes,
            takes_tokens=self._slot.takes_tokens,
            ranges=lambda: self._slot.ranges,
            model_of=self._slot.model_of,
        )
        self._turns = Turns(self._limiter, self._slot)
        self._one_by_one = OneByOne()
        self.quarantine = quarantine or Quarantine((times or EngineTimes()).quarantine_s)
        self._forwarder = Forwarder(
            self._slot,
            times or EngineTimes(),
            quarantine=self.quarantine,
            observer=self._observer,
            on_first_byte=self._on_first_byte,
            retry_after_s=self._retry_after_s,
        )
        self._tokenizing = Tokenizing(
            admission=admission,
            intake=self._intake,
            slot=self._slot,
            forwarder=self._forwarder,
            turns=self._turns,
            limiter=self._limiter,
        )
        self.use_directory(directory)

    def use_directory(self, snapshot: DirectorySnapshot, change: DirectoryChange | None = None) -> None:
        """Take tenants and keys from `snapshot` from now on; `change` is what differs, if known."""
        is_next = change is not None and change.before is self._authenticator.directory
        self._authenticator.directory = snapshot
        self.admission.expect(len(snapshot.tenants))
        self._limiter.use_tenants(snapshot.tenants)
        self._limiter.use_prices(snapshot.prices)
        if change is not None and is_next:
            self._first_tokens.use_changed(change.tenants)
        else:
            self._first_tokens.use_tenants(snapshot.tenants.values())

    def use_limits(self, limits: BodyLimits, times: EngineTimes) -> None:
        """Let requests be so large and take so long from now on."""
        self.quarantine.hold_s = times.quarantine_s
        self._intake.limits = limits
        self._forwarder.times = times

    def use_engine(self, address: EngineAddress) -> None:
        """Send requests to the engine at `address` from now on."""
        self._slot.fill(address)

    def lose_engine(self, state: str, reason: str | None = None) -> None:
        """End what is in flight with an error; new requests are refused because of `state`. `reason` is why
        the engine ended."""
        lost = self._slot.upstream
        if lost is not None:
            if self._slot.is_draining:
                self.quarantine.engine_ended(lost)
            else:
                self.quarantine.engine_died(lost, reason)
        self._forwarder.interrupt_all(End.ENGINE_LOST)
        self._slot.empty(state)

    def in_flight(self) -> list[str]:
        """The id and tenant of each request that the engine in the slot has, or has just lost."""
        upstream = self._slot.upstream
        lost = [] if upstream is None else self.quarantine.lost_with(upstream)
        return [f"{rid} {tenant}" for rid, tenant in dict([*lost, *self._forwarder.in_flight()]).items()]

    def suspect_engine(self, is_unresponsive: bool) -> None:
        """Refuse new requests while the engine is silent; those in flight wait for it."""
        self._slot.suspect(is_unresponsive)

    def refuse_new(self) -> None:
        """Answer new requests with 503 from now on, and those that wait for their turn."""
        self._slot.refuse_new()
        self._turns.end_waits()

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
        ended = self._forwarder.interrupt_all(End.SHUTDOWN)
        if not await self.idle_within(_LAST_WORDS_S):
            log.warning("clients did not take the end of their answers", in_flight=self.admission.in_flight)
        return ended

    async def idle_within(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False if `timeout_s` was too short."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.admission.wait_idle()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End what is still in flight and close the connections to the engine."""
        self._forwarder.interrupt_all(End.SHUTDOWN)
        await self._slot.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request (ASGI)."""
        call = Call(receive=receive, send=send, push=push_of(scope), client_id=client_request_id(scope))
        try:
            try:
                await self._serve(call, scope)
            except MemoryError:
                log.error("no memory for a request", rid=call.rid, tenant=call.tenant, path=call.path)
                raise _no_memory() from None
        except RequestError as error:
            call.status, call.error = error.status, error.code
            self._metrics.request_refused(call.tenant, error.code)
            if call.tenant and (error.status == 429 or error.status >= 500):
                self._observer.on_refused(
                    call.tenant,
                    error.code,
                    request_id=call.rid if call.asks_model else "",
                    path=call.path,
                    status=error.status,
                )
            await send_answer(send, call.dialect.answer_for(error), extra=call.id_headers)
        except Exception:
            # A defect of ours, and not its client's leaving. The server logs it, and answers 500 if it can.
            call.status, call.end = 500, End.DEFECT
            raise
        finally:
            call.trace.answered(status=call.status, end=call.end.value, error=call.error)
            self._account(call, scope)

    async def _serve(self, call: Call, scope: Scope) -> None:
        call.dialect = dialect_of(scope["path"])
        route = find_route(scope["method"], scope["path"])
        call.path, call.dialect = route.path, route.dialect_for(scope)
        if route.kind is Kind.HEALTH:
            self._slot.serving()
            call.status = 200
            await send_answer(call.send, Answer(status=200, body=b'{"status":"ok"}'))
            return
        if route.kind is Kind.LOAD_METRICS:
            await self._tell_scraper(call)
            return
        await self._one_by_one.turn()
        identity = self._authenticator.identify(call, scope)
        tenant = identity.tenant
        call.tenant = tenant.name
        self._key_used(identity.key.key_id)
        if route.kind in (Kind.ABOUT, Kind.DOCUMENT):
            is_document = route.kind is Kind.DOCUMENT
            known = document() if is_document else msgspec.json.encode(about.answer(route.path, self._load()))
            call.status = 200
            await send_answer(call.send, Answer(status=200, body=known), extra=call.id_headers)
            return
        if route.kind in OPERATIONS:
            call.asks_model = True
            call.trace = self._tracer.begin(
                scope,
                rid=call.rid,
                client_id=call.client_id,
                tenant=tenant.name,
                path=route.path,
                operation=OPERATIONS[route.kind],
            )
        if not self._forwarder.times.wait_s:
            self._slot.serving()
        if route.kind in (Kind.MODELS, Kind.MODEL, Kind.TOKENIZER):
            await self._tell_models(call, scope, route, tenant)
            return
        if route.kind in TOKENIZING:
            await self._tokenizing.serve(call, scope, route, identity)
            return
        await self._generate(call, scope, route, identity)

    async def _generate(self, call: Call, scope: Scope, route: Route, identity: Identity) -> None:
        """Answers of the model: a place under the limits for each until the end.

        Raises: RequestError for whatever the client is to be told instead of an answer.
        """
        tenant = identity.tenant
        targets = targets_of(scope) if self._trusted.sent(scope) else None
        targets = self._sessions.applied(scope, tenant.name, tenant.slo, targets)
        if targets is not None:
            tenant = replace(tenant, slo=targets.applied_to(tenant.slo))
        self.admission.enter(tenant.name, tenant.max_in_flight, weight=tenant.weight)
        self._observer.on_begin(call.rid, tenant=tenant.name, path=call.path, key_id=identity.key.key_id)
        if targets is not None:
            self._observer.on_targets(call.rid, targets)
        places = 1
        try:
            most = most_output_tokens(identity)
            with self._limiter.reading(identity):
                received = await self._intake.receive(
                    call, scope, route.kind, tenant, targets, max_output_tokens=most
                )
            if received is None:
                call.end = End.CLIENT_GONE
                return
            request, body_bytes = received.request, received.body_bytes
            call.trace.asked(model=request.model, is_streamed=request.is_streamed, outputs=request.outputs)
            self.admission.grow(
                tenant.name, tenant.max_in_flight, outputs=request.outputs, weight=tenant.weight
            )
            places = request.outputs
            need = need_of(request, body_bytes=body_bytes, context_tokens=self._slot.context_tokens)
            if not await self._turns.take(call, identity, need):
                call.end = End.CLIENT_GONE
                return
            call.token_path = "http" if request.is_streamed else None
            if request.is_streamed and places == 1:
                call.delivery = Delivery(
                    arrived_s=received.arrived_s, read_late_s=received.late_s, tbt_target_s=tenant.slo.tbt_s
                )
            new_tokens = self._expected.input_tokens(tenant.name, body_bytes)
            self._first_tokens.admit(call.rid, tenant, new_tokens)
            await self._one_by_one.turn()
            await self._forwarder.send(
                call,
                route,
                request,
                first_byte_within_s=key_wait_s(identity) if request.is_streamed else [],
                holds_head=tenant.late_action == "refuse" or tenant.max_wait_ms is not None,
            )
            await self._one_by_one.turn()
        except RequestError as error:
            call.status, call.error = error.status, error.code
            raise
        except Exception:
            call.status, call.end = 500, End.DEFECT
            raise
        finally:
            self._first_tokens.ended(call.rid)
            was_served = call.status < 400 or call.status == CLIENT_GONE_STATUS
            self._limiter.leave(call.rid, was_served=was_served and call.end is not End.ENGINE_LOST)
            self.admission.leave(tenant.name, places)
            if was_served and call.end is End.COMPLETE:
                self._series.ended(time.monotonic() - call.started_s)
            delivered = None if call.delivery is None else call.delivery.seen()
            end = "" if call.end is End.COMPLETE else call.end.value
            self._observer.on_answered(
                call.rid, status=call.status, delivered=delivered, end=end, error=call.error or ""
            )

    async def _tell_models(self, call: Call, scope: Scope, route: Route, tenant: TenantRecord) -> None:
        """The models, one, or the tokenizer. Raises: RequestError 404 for none, 503 if no engine serves."""
        upstream = self._slot.serving()
        name = self._slot.model_of(tenant, model_of(scope["path"])) if route.kind is Kind.MODEL else None
        check_model(name, upstream.models)
        if call.dialect is ANTHROPIC:
            known = about.anthropic_models(upstream.models) if name is None else about.anthropic_model(name)
            call.status = 200
            answer = Answer(status=200, body=msgspec.json.encode(known))
            await send_answer(call.send, answer, extra=call.id_headers)
            return
        # No answer of the model, but a connection to the engine all the same.
        self.admission.enter(tenant.name, tenant.max_in_flight, weight=tenant.weight)
        try:
            asked = route if name is None else replace(route, path=ONE_MODEL.path.format(id=name))
            await self._forwarder.relay(call, asked, upstream)
        finally:
            self.admission.leave(tenant.name)

    async def _tell_scraper(self, call: Call) -> None:
        """Raises: RequestError 404 unless `data.load_metrics` is set, since anybody who may connect would see
        the load; 503 while no engine serves."""
        if not self._tells_load:
            raise RequestError(
                "the load is not told here (data.load_metrics)", status=404, code="unknown_path"
            )
        self._slot.serving()  # 503: a node that serves nothing would look like the one with the least load
        call.status = 200
        text = about.metrics_text(self._load(), self._series)
        await send_answer(call.send, Answer(status=200, body=text, content_type=about.METRICS_TYPE))

    def _retry_after_s(self, call: Call, cause: str) -> int:
        waited_s = time.monotonic() - call.started_s
        return self._first_tokens.retry_after_s(call.rid, cause, waited_s=waited_s)

    def _on_first_byte(self, call: Call) -> None:
        self._metrics.first_byte(took_s := time.monotonic() - call.started_s)
        self._series.begun(took_s)
        call.trace.first_byte()
        self._first_tokens.begun(call.rid)
        self._observer.on_first_byte(call.rid)

    def _account(self, call: Call, scope: Scope) -> None:
        self._metrics.request_ended(call.tenant, call.path, call.status)
        if call.token_path is not None:
            self._metrics.stream_ended(call.token_path)
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


def _no_memory() -> RequestError:
    """The daemon had no memory for a request. What it held is free again; no other request is affected."""
    return RequestError(
        OUT_OF_MEMORY.message, status=503, code=OUT_OF_MEMORY.cause, retry_after_s=RETRY_AFTER_S
    )
