"""How spans get to the collector: in a thread of OpenTelemetry's, from a queue that is bounded here.

A collector that is gone, silent or slow costs the spans that no longer fit, which are counted, and one line
in the log until it takes spans again. Requests never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

EXPORT_TIMEOUT_S = 5.0
"""For one batch, repetitions included."""
EVERY_S = 1.0
MAX_BATCH = 512
CLOSE_WITHIN_S = 3.0

log = structlog.get_logger("pdmuxd.tracing")

Count = Callable[[str, int], None]
"""Of spans, with what became of them: `exported`, `export_failed` or `queue_full`."""


class _Counted(SpanExporter):
    """The exporter to the collector, with what it delivers counted."""

    def __init__(self, exporter: SpanExporter, count: Count) -> None:
        self._exporter = exporter
        self._count = count
        self._is_failing = False
        self.taken = 0
        """Spans that left the queue. Only the exporting thread adds to it."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Deliver a batch, in the exporting thread."""
        self.taken += len(spans)
        result = self._exporter.export(spans)
        is_delivered = result is SpanExportResult.SUCCESS
        self._count("exported" if is_delivered else "export_failed", len(spans))
        if is_delivered == self._is_failing:
            self._is_failing = not is_delivered
            if is_delivered:
                log.info("the trace collector takes spans again")
            else:
                log.warning("the trace collector takes no spans; serving goes on, spans are dropped")
        return result

    def shutdown(self) -> None:
        """No more batches."""
        self._exporter.shutdown()


class BoundedExport(SpanProcessor):
    """Takes ended spans; what does not fit into the queue is dropped and counted."""

    def __init__(self, exporter: SpanExporter, *, max_queued_spans: int, count: Count) -> None:
        self._exporter = _Counted(exporter, count)
        self._count = count
        self._max = max_queued_spans
        self._given = 0
        # Its own bound is never met, since the one here counts a batch as queued until it is exported.
        self._batches = BatchSpanProcessor(
            self._exporter,
            max_queue_size=max_queued_spans + MAX_BATCH,
            schedule_delay_millis=EVERY_S * 1e3,
            max_export_batch_size=MAX_BATCH,
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queue it if it is sampled. Only ever called in the event loop."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._given - self._exporter.taken >= self._max:
            self._count("queue_full", 1)
            return
        self._given += 1
        self._batches.on_end(span)

    def shutdown(self) -> None:
        """Deliver what is queued; blocks."""
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Deliver what is queued now; blocks."""
        return self._batches.force_flush(timeout_millis)

    async def close(self) -> None:
        """Deliver what is queued, as far as that takes no longer than CLOSE_WITHIN_S."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def deliver() -> None:
            self.shutdown()
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:
                return  # the loop has ended meanwhile

        # Not in asyncio's own threads, whose end a daemon waits for.
        threading.Thread(target=deliver, name="last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await done.wait()
        except TimeoutError:
            log.warning("the trace collector did not take the last spans in time")


def otlp_exporter(endpoint: str) -> SpanExporter:
    """Export to the collector at `endpoint`. Headers (its key, for one) come from
    OTEL_EXPORTER_OTLP_HEADERS."""
    # It logs each failed try, where one line is enough: see _Counted.
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
