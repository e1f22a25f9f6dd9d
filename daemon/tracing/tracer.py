"""The spans of each request: the gateway's, below it queue, prefill and decode as the engine reports them.

The gateway's span is kept until the engine's record of the request is there, since the record has the tokens
and the times; then all of them are ended at once. No span has any text of a prompt, an answer or a key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pdmuxd.daemon.gateway.tracing import CallTrace, Untraced, given_context
from pdmuxd.daemon.httpd.asgi import Scope
from pdmuxd.daemon.tracing import attributes as names
from pdmuxd.daemon.tracing.exporting import BoundedExport
from pdmuxd.daemon.tracing.phases import Answer, phases_of, totals_of
from pdmuxd.daemon.tracing.sampling import PeerSampler, following
from pdmuxd.engine.link.messages import RequestRecord

RECORD_WITHIN_S = 5.0
"""After its answer a request's record takes milliseconds; later there was no engine to send one."""
PROVIDER = "pdmuxd"
_RID_CHARS = 32
"""The engines add to a request's id where it has several answers."""
_MODEL_CHARS = 120
_W3C = TraceContextTextMapPropagator()


class SpanTracer:
    """Implements Tracer. All methods are for the daemon's event loop.

    `follows_parent` says of a call whether its caller is trusted to decide what is sampled.
    """

    def __init__(
        self,
        export: BoundedExport,
        *,
        sample_ratio: float,
        follows_parent: Callable[[Scope], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        resource = Resource.create({"service.name": "pdmuxd", "service.version": version("pdmuxd")})
        provider = TracerProvider(
            resource=resource, shutdown_on_exit=False, sampler=PeerSampler(sample_ratio)
        )
        provider.add_span_processor(export)
        self.tracer = provider.get_tracer("pdmuxd", version("pdmuxd"))
        self._export = export
        self._follows_parent = follows_parent
        self._open: dict[str, RequestTrace] = {}

    def begin(
        self, scope: Scope, *, rid: str, client_id: str | None, tenant: str, path: str, operation: str
    ) -> CallTrace:
        """Start the gateway's span; nothing but the context if it is not sampled."""
        context = _W3C.extract(given_context(scope), Context())
        if self._follows_parent(scope):
            context = following(context)
        began_ns = time.time_ns()
        span = self.tracer.start_span(
            operation,
            context,
            SpanKind.SERVER,
            {
                names.OPERATION: operation,
                names.PROVIDER: PROVIDER,
                names.METHOD: "POST",
                names.ROUTE: path,
                names.TENANT: tenant,
                names.REQUEST_ID: rid,
                **({} if client_id is None else {names.CLIENT_REQUEST_ID: client_id}),
            },
            start_time=began_ns,
        )
        headers: dict[str, str] = {}
        _W3C.inject(headers, set_span_in_context(span, Context()))
        if not span.is_recording():
            return Untraced(headers)
        trace = self._open[rid] = RequestTrace(
            self, span, headers, rid=rid, operation=operation, began_ns=began_ns
        )
        return trace

    def on_record(self, record: RequestRecord) -> None:
        trace = self._open.get(record.request_id[:_RID_CHARS])
        if trace is not None:
            trace.on_record(record)

    def ended(self, rid: str) -> None:
        """A trace has made all of its spans."""
        self._open.pop(rid, None)

    async def close(self) -> None:
        """End what waits for records, and deliver what is queued."""
        for trace in tuple(self._open.values()):
            trace.finish()
        await self._export.close()


class RequestTrace:
    """Implements CallTrace, of a request that is sampled."""

    __slots__ = (
        "_answered_s",
        "_answers",
        "_began_ns",
        "_began_s",
        "_clock",
        "_operation",
        "_outputs",
        "_owner",
        "_rid",
        "_sent_s",
        "_span",
        "_timer",
        "headers",
    )

    def __init__(
        self,
        owner: SpanTracer,
        span: Span,
        headers: Mapping[str, str],
        *,
        rid: str,
        operation: str,
        began_ns: int,
    ) -> None:
        self.headers = headers
        self._owner = owner
        self._span = span
        self._rid = rid
        self._operation = operation
        self._clock = owner.clock
        self._began_ns, self._began_s = began_ns, owner.clock()
        self._sent_s: float | None = None
        self._answered_s: float | None = None
        self._outputs = 1
        self._answers: list[Answer] = []
        self._timer: asyncio.TimerHandle | None = None

    def asked(self, *, model: str | None, is_streamed: bool, outputs: int) -> None:
        self._outputs = outputs
        self._span.set_attribute(names.STREAM, is_streamed)
        if outputs > 1:
            self._span.set_attribute(names.CHOICES, outputs)
        if model is not None:
            self._span.update_name(f"{self._operation} {model[:_MODEL_CHARS]}")
            self._span.set_attribute(names.REQUEST_MODEL, model[:_MODEL_CHARS])

    def sent(self) -> None:
        self._sent_s = self._clock()

    def first_byte(self) -> None:
        """The engine's answer began to arrive."""
        self._span.set_attribute(names.TIME_TO_FIRST_CHUNK, self._clock() - self._began_s)

    def answered(self, *, status: int, end: str, error: str | None) -> None:
        """Note the end of an answer; the spans are made when the engine has reported it, too."""
        self._answered_s = self._clock()
        self._span.set_attribute(names.STATUS, status)
        self._span.set_attribute(names.END, end)
        kind = error or (end if end != "complete" else str(status) if status >= 400 else None)
        if kind is not None:
            self._span.set_attribute(names.ERROR, kind)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        if self._sent_s is None or len(self._answers) >= self._outputs:
            self.finish()
        else:
            self._timer = asyncio.get_running_loop().call_later(RECORD_WITHIN_S, self.finish)

    def on_record(self, record: RequestRecord) -> None:
        """One of its answers ended in the engine."""
        now_s = self._clock()
        sent_s = self._began_s if self._sent_s is None else self._sent_s
        self._answers.append(Answer.of(record, sent_s=sent_s, received_s=now_s))
        if self._answered_s is not None and len(self._answers) >= self._outputs:
            self.finish()

    def finish(self) -> None:
        """Make and end all of its spans."""
        if self._timer is not None:
            self._timer.cancel()
        self._owner.ended(self._rid)
        context = following(set_span_in_context(self._span, Context()))
        for answer in self._answers:
            for phase in phases_of(answer):
                child = self._owner.tracer.start_span(
                    phase.name,
                    context,
                    SpanKind.INTERNAL,
                    phase.attributes,
                    start_time=self._at_ns(phase.begin_s),
                )
                child.end(self._at_ns(phase.end_s))
        if self._answers:
            self._span.set_attributes(totals_of(self._answers))
        end_s = self._clock() if self._answered_s is None else self._answered_s
        self._span.end(self._at_ns(end_s))

    def _at_ns(self, instant_s: float) -> int:
        """The wall clock's time of a monotonic instant."""
        return self._began_ns + round((instant_s - self._began_s) * 1e9)
