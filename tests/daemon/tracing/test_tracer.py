"""The spans that arrive at a collector for one request: their relation, times, and names."""

from __future__ import annotations

from telemetry_feeds import request_record

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-00"}


async def test_queue_prefill_and_decode_lie_below_the_gateway_when_a_request_ends(
    make_tracer, serve, collected, collector
):
    serve(make_tracer(), queue_s=0.125, ttft_s=0.25, decode_s=0.5)
    spans = await collected(4)
    gateway = spans["chat llama-8b"]
    assert (gateway.parent_id, gateway.kind) == ("", 2)
    for name in ("queue", "prefill", "decode"):
        assert (spans[name].trace_id, spans[name].parent_id) == (gateway.trace_id, gateway.span_id)
    when = {
        name: ((span.begin_ns - gateway.begin_ns) / 1e9, (span.end_ns - gateway.begin_ns) / 1e9)
        for name, span in spans.items()
    }
    assert when == {
        "chat llama-8b": (0.0, 2.0),
        "queue": (1.25, 1.375),
        "prefill": (1.375, 1.5),
        "decode": (1.5, 2.0),
    }
    assert collector.resource["service.name"] == "pdmuxd"


async def test_the_names_are_those_of_the_conventions_when_a_request_ends(make_tracer, serve, collected):
    serve(
        make_tracer(),
        new_tokens=90,
        reused_tokens=10,
        output_tokens=11,
        ttft_s=0.3,
        decode_s=0.2,
        tbt_gaps=10,
        tbt_gaps_met=9,
    )
    spans = await collected(4)
    seen = spans["chat llama-8b"].attributes
    assert seen == {
        "gen_ai.response.time_to_first_chunk": 1.25,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "pdmuxd",
        "gen_ai.request.model": "llama-8b",
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.server.time_to_first_token": 0.3,
        "gen_ai.server.time_per_output_token": 0.02,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "pdmuxd.tenant": "alice",
        "pdmuxd.request.id": "ab" * 16,
        "pdmuxd.request.client_id": "mine",
        "pdmuxd.end": "complete",
        "pdmuxd.slo.ttft_met": True,
    }
    assert spans["decode"].attributes["pdmuxd.slo.tbt_gaps_missed"] == 1


async def test_the_callers_trace_goes_on_when_it_sent_one(make_tracer, serve, collected):
    trace = serve(make_tracer(), headers=SAMPLED)
    gateway = (await collected(4))["chat llama-8b"]
    assert (gateway.trace_id, gateway.parent_id) == (TRACE, CALLER)
    assert trace.headers["traceparent"].startswith(f"00-{TRACE}-{gateway.span_id}-")
    assert _is_sampled(trace)
    assert trace.headers["tracestate"] == "vendor=1"


async def test_a_trace_begins_when_the_caller_sent_none(make_tracer, serve, collected):
    trace = serve(make_tracer())
    gateway = (await collected(4))["chat llama-8b"]
    assert trace.headers["traceparent"].startswith(f"00-{gateway.trace_id}-{gateway.span_id}-")
    assert _is_sampled(trace)


async def test_a_trace_begins_when_the_callers_is_malformed(make_tracer, serve, collected):
    serve(make_tracer(), headers={"traceparent": f"00-{'0' * 32}-{CALLER}-01"})
    assert (await collected(4))["chat llama-8b"].parent_id == ""


async def test_nothing_is_made_when_the_ratio_is_0(make_tracer, serve, collector, counts):
    tracer = make_tracer(ratio=0.0)
    trace = serve(tracer, headers=SAMPLED)
    await tracer.close()
    assert (collector.spans, dict(counts)) == ([], {})
    assert trace.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert not _is_sampled(trace)


async def test_the_callers_decision_is_followed_when_it_is_trusted(make_tracer, serve, collected):
    serve(make_tracer(ratio=0.0, trusted=True), headers=SAMPLED)
    assert "decode" in await collected(4)


async def test_the_callers_refusal_is_followed_only_when_it_is_trusted(
    make_tracer, serve, collector, collected
):
    trusting = make_tracer(trusted=True)
    serve(trusting, headers=UNSAMPLED)
    await trusting.close()
    assert collector.spans == []
    serve(make_tracer(), headers=UNSAMPLED)
    await collected(4)


async def test_a_refused_request_is_one_span_with_its_cause(make_tracer, begin, collected):
    trace = begin(make_tracer())
    trace.answered(status=429, end="complete", error="too_many_in_flight")
    spans = await collected(1)
    assert spans["chat"].attributes["error.type"] == "too_many_in_flight"
    assert not spans["chat"].is_error


async def test_all_answers_are_under_one_span_when_a_request_has_several(
    make_tracer, begin, collected, collector
):
    tracer = make_tracer()
    trace = begin(tracer)
    trace.asked(model="llama-8b", is_streamed=False, outputs=2)
    trace.sent()
    trace.answered(status=200, end="complete", error=None)
    for i in range(2):
        tracer.on_record(request_record(request_id=f"{'ab' * 16}_{i}", output_tokens=4 + i))
    spans = await collected(7)
    assert spans["chat llama-8b"].attributes["gen_ai.usage.output_tokens"] == 9
    assert [span.name for span in collector.spans].count("decode") == 2


async def test_a_request_that_was_never_begun_has_only_its_queue(make_tracer, serve, collected):
    serve(
        make_tracer(),
        outcome="refused",
        cause="max_wait",
        queue_s=None,
        ttft_s=None,
        tbt_gaps=0,
        tbt_max_s=None,
    )
    spans = await collected(2)
    assert spans.keys() == {"chat llama-8b", "queue"}
    assert spans["queue"].attributes["pdmuxd.refusal_cause"] == "max_wait"


async def test_spans_without_a_record_are_delivered_when_the_tracer_closes(make_tracer, begin, collector):
    tracer = make_tracer()
    trace = begin(tracer)
    trace.sent()
    trace.answered(status=502, end="engine_lost", error=None)
    await tracer.close()
    (span,) = collector.spans
    assert (span.is_error, span.attributes["error.type"]) == (True, "engine_lost")


def _is_sampled(trace):
    return bool(int(trace.headers["traceparent"].rpartition("-")[2], 16) & 1)
