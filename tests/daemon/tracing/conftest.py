"""A tracer in front of a collector on loopback, fed by hand."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from otlp_collector import collecting
from telemetry_feeds import request_record

from pdmuxd.daemon.settings.tracing import TracingSection
from pdmuxd.daemon.tracing import exporting
from pdmuxd.daemon.tracing.exporting import BoundedExport, otlp_exporter
from pdmuxd.daemon.tracing.tracer import SpanTracer

RID = "ab" * 16


@pytest.fixture
def collector():
    with collecting() as made:
        yield made


@pytest.fixture
def counts():
    return Counter()


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def make_tracer(collector, counts, clock, monkeypatch):
    monkeypatch.setattr(exporting, "EVERY_S", 0.01)
    made = []

    def make(*, ratio=1.0, queued=64, trusted=False):
        endpoint = TracingSection(endpoint=collector.url).endpoint
        export = BoundedExport(
            otlp_exporter(endpoint),
            max_queued_spans=queued,
            count=lambda result, spans: counts.update({result: spans}),
        )
        tracer = SpanTracer(export, sample_ratio=ratio, follows_parent=lambda _: trusted, clock=clock)
        made.append(tracer)
        return tracer

    yield make
    for tracer in made:
        await tracer.close()


@pytest.fixture
def begin():
    def begin(tracer, *, rid=RID, **headers):
        scope = {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
        return tracer.begin(
            scope, rid=rid, client_id="mine", tenant="alice", path="/v1/chat/completions", operation="chat"
        )

    return begin


@pytest.fixture
def serve(begin, clock):
    """One request from its arrival to its end two seconds later, with the engine's record."""

    def serve(tracer, *, rid=RID, headers=None, **changes):
        trace = begin(tracer, rid=rid, **(headers or {}))
        trace.asked(model="llama-8b", is_streamed=True, outputs=1)
        clock.now_s += 0.25
        trace.sent()
        clock.now_s += 1.0
        trace.first_byte()
        clock.now_s += 0.75
        fields = {"request_id": rid, "tenant": "alice", "decode_s": 0.0} | changes
        tracer.on_record(request_record(**fields))
        trace.answered(status=200, end="complete", error=None)
        return trace

    return serve


@pytest.fixture
def collected(collector):
    async def collected(count):
        return await asyncio.to_thread(collector.wait_for, count)

    return collected
