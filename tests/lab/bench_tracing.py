"""What a trace costs the event loop for each request: python tests/lab bench-tracing."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from telemetry_feeds import request_record

from pdmuxd.daemon.gateway.tracing import NoTracer
from pdmuxd.daemon.tracing.exporting import BoundedExport
from pdmuxd.daemon.tracing.tracer import SpanTracer

REQUESTS = 5000
HEADERS = [
    (name, b"value") for name in (b"host", b"authorization", b"content-type", b"user-agent", b"accept")
]


class Nowhere(SpanExporter):
    def export(self, spans):
        return SpanExportResult.SUCCESS

    def shutdown(self):
        pass


def traced(ratio):
    export = BoundedExport(Nowhere(), max_queued_spans=REQUESTS * 4, count=lambda result, spans: None)
    return SpanTracer(export, sample_ratio=ratio)


async def measure(name, tracer):
    began_s = time.process_time()
    for i in range(REQUESTS):
        rid = f"{i:032x}"
        trace = tracer.begin(
            {"headers": HEADERS},
            rid=rid,
            client_id=None,
            tenant="a",
            path="/v1/chat/completions",
            operation="chat",
        )
        trace.asked(model="m", is_streamed=True, outputs=1)
        trace.sent()
        trace.first_byte()
        if isinstance(tracer, SpanTracer):
            tracer.on_record(request_record(request_id=rid, decode_s=0.1))
        trace.answered(status=200, end="complete", error=None)
    print(f"{name}: {(time.process_time() - began_s) / REQUESTS * 1e6:.1f} us a request")


async def main():
    await measure("no tracer", NoTracer())
    await measure("not sampled", traced(0.0))
    await measure("sampled", traced(1.0))


if __name__ == "__main__":
    asyncio.run(main())
