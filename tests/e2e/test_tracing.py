"""Spans of real requests on the emulated engine, as a collector gets them."""

import httpx
import pytest
from daemon_process import wait_until
from otlp_collector import collecting

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "a secret that is in no span"


@pytest.fixture
def collector():
    with collecting() as made:
        yield made


@pytest.fixture
def ask():
    def ask(daemon, **options):
        body = {
            "model": daemon.model,
            "messages": [{"role": "user", "content": SECRET}],
            "max_tokens": 8,
            "ignore_eos": True,
            **options.pop("body", {}),
        }
        headers = {"Authorization": f"Bearer {daemon.key}", **options}
        return httpx.post(f"{daemon.data_url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    return ask


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_traced_from_the_gateway_to_its_last_token(start, collector, ask, stream):
    daemon = start(settings=[f"tracing.endpoint={collector.url}"])
    answer = ask(daemon, traceparent=f"00-{TRACE}-{CALLER}-01", body={"stream": stream})
    assert answer.status_code == 200
    spans = collector.wait_for(4)
    gateway = spans[f"chat {daemon.model}"]
    assert (gateway.trace_id, gateway.parent_id) == (TRACE, CALLER)
    assert gateway.attributes["pdmuxd.request.id"] == answer.headers["x-request-id"]
    assert gateway.attributes["gen_ai.usage.output_tokens"] == 8
    assert gateway.attributes["gen_ai.request.stream"] is stream
    phases = [spans[name] for name in ("queue", "prefill", "decode")]
    assert {span.parent_id for span in phases} == {gateway.span_id}
    edges = [instant for span in phases for instant in (span.begin_ns, span.end_ns)]
    assert edges == sorted(edges)
    assert edges[0] >= gateway.begin_ns
    sent = b"".join(collector.raw)
    assert SECRET.encode() not in sent
    assert daemon.key.encode() not in sent
    wait_until(lambda: daemon.metric('pdmuxd_trace_spans_total{result="exported"}') == 4)


def test_serving_and_stopping_go_on_when_the_collector_is_silent(start, collector, ask):
    collector.silent = True
    daemon = start(settings=[f"tracing.endpoint={collector.url}", "tracing.max_queued_spans=16"])
    for _ in range(12):
        assert ask(daemon).status_code == 200
    wait_until(lambda: daemon.metric('pdmuxd_trace_spans_total{result="queue_full"}') > 0)
    assert daemon.stop() == 0
    assert daemon.log.count("takes no spans") + daemon.log.count("did not take the last spans") <= 2
    assert "Traceback" not in daemon.log
