"""What Prometheus sees of requests and tenants."""

import pytest
from scrapes import samples, value
from telemetry_feeds import HELLO, heartbeat, request_record, step

from pdmuxd.controlplane.telemetry.judged import judge
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.counted import length_class
from pdmuxd.daemon.replay.metrics import LENGTH_CLASSES
from pdmuxd.engine.link.durations import counted, middle_s


def record(**changes):
    values = {
        "tenant": "alice",
        "new_tokens": 90,
        "reused_tokens": 10,
        "output_tokens": 5,
        "queue_s": 0.01,
        "ttft_s": 0.2,
        "ttft_target_s": 0.5,
        "tbt_target_s": 0.05,
        "tbt_max_s": 0.06,
        "tbt_p99_s": 0.06,
        "tbt_gaps": 4,
        "tbt_gaps_met": 3,
        "tbt_counts": (),
    }
    return request_record(**values | changes)


@pytest.fixture
def metrics():
    made = Metrics()
    made.use_tenants(("alice", "bob"))
    return made


def test_attainment_is_counted_when_a_request_ends(metrics):
    metrics.request_record(record())
    metrics.request_record(record(ttft_s=0.6, tbt_gaps_met=4, tbt_max_s=0.04))
    expected = {
        "pdmuxd_ttft_met_total": 1,
        "pdmuxd_ttft_requests_total": 2,
        "pdmuxd_tbt_met_total": 1,
        "pdmuxd_tbt_requests_total": 2,
        "pdmuxd_tbt_gaps_met_total": 7,
        "pdmuxd_tbt_gaps_total": 8,
        "pdmuxd_prompt_tokens_total": 200,
        "pdmuxd_reused_tokens_total": 20,
        "pdmuxd_output_tokens_total": 10,
        "pdmuxd_ttft_seconds_count": 2,
        "pdmuxd_tbt_max_seconds_count": 2,
    }
    assert {name: value(metrics, name, tenant="alice") for name in expected} == expected
    assert value(metrics, "pdmuxd_ttft_seconds_sum", tenant="alice") == pytest.approx(0.8)


def test_no_latency_is_counted_when_a_request_was_aborted_before_its_first_token(metrics):
    metrics.request_record(record(outcome="aborted", ttft_s=None, tbt_max_s=None, tbt_gaps=0, tbt_gaps_met=0))
    found = samples(metrics)
    assert ("pdmuxd_ttft_requests_total", (("tenant", "alice"),)) not in found
    assert value(metrics, "pdmuxd_engine_requests_total", tenant="alice", outcome="aborted") == 1


def test_a_tenant_that_nobody_knows_is_no_label(metrics):
    for name in ("mallory-1", "mallory-2"):
        metrics.request_record(record(tenant=name))
        metrics.request_ended(name, "/generate", 200)
    assert "mallory" not in metrics.render().decode()
    assert value(metrics, "pdmuxd_requests_total", tenant="", path="/generate", status="200") == 2


def test_the_series_of_a_deleted_tenant_are_dropped(metrics):
    metrics.request_record(record())
    metrics.request_ended("alice", "/generate", 200)
    metrics.request_ended("bob", "/generate", 200)
    metrics.use_tenants(("bob",))
    text = metrics.render().decode()
    assert "alice" not in text
    assert 'tenant="bob"' in text


def test_gaps_are_counted_in_the_bucket_that_holds_them(metrics):
    gaps_s = sorted([0.0005, 0.0301, 0.0302, 0.12, 30.0])
    metrics.request_record(record(tbt_counts=counted(gaps_s), tbt_gaps=5))
    cumulated = {
        float(dict(labels)["le"]): count
        for (name, labels), count in samples(metrics).items()
        if name == "pdmuxd_tbt_seconds_bucket"
    }
    for bound, count in cumulated.items():
        assert count == sum(gap_s <= bound for gap_s in gaps_s), bound
    assert value(metrics, "pdmuxd_tbt_seconds_sum", tenant="alice") == pytest.approx(sum(gaps_s), rel=0.04)


def test_a_bucket_that_there_is_not_counts_as_the_longest(metrics):
    metrics.request_record(record(tbt_counts=((9999, 2),), tbt_gaps=2))
    assert value(metrics, "pdmuxd_tbt_seconds_count", tenant="alice") == 2
    assert value(metrics, "pdmuxd_tbt_seconds_sum", tenant="alice") == pytest.approx(2 * middle_s(209))


def test_the_gaps_of_a_deleted_tenant_are_dropped(metrics):
    metrics.request_record(record(tbt_counts=((50, 4),)))
    metrics.use_tenants(("bob",))
    assert 'tenant="alice"' not in metrics.render().decode()


def test_tenants_beyond_the_limit_share_a_series():
    metrics = Metrics(max_tenants=2)
    metrics.use_tenants(("a", "b", "c", "d"))
    for name in ("c", "a", "d", "b", "c"):
        metrics.request_ended(name, "/generate", 200)
    found = {labels: count for (name, labels), count in samples(metrics).items() if "requests_total" in name}
    assert {dict(labels)["tenant"]: count for labels, count in found.items()} == {"c": 2, "a": 1, "_rest": 2}

    metrics.use_tenants(("a", "b", "d"))
    metrics.request_ended("b", "/generate", 200)
    assert value(metrics, "pdmuxd_requests_total", tenant="b", path="/generate", status="200") == 1


def test_refusals_are_counted_by_cause(metrics):
    metrics.request_refused("alice", "tenant_limit")
    metrics.request_refused("", "missing_api_key")
    assert value(metrics, "pdmuxd_refusals_total", tenant="alice", cause="tenant_limit") == 1
    assert value(metrics, "pdmuxd_refusals_total", tenant="", cause="missing_api_key") == 1


def test_decisions_are_counted_by_reason_and_an_unknown_one_is_no_label(metrics):
    metrics.decision(step())
    metrics.decision(step(reason="made up", mode="by somebody"))
    assert value(metrics, "pdmuxd_decisions_total", mode="split", reason="best_fit") == 1
    assert value(metrics, "pdmuxd_decisions_total", mode="other", reason="other") == 1


def test_sm_time_is_the_busy_share_of_all_sms_since_the_last_heartbeat(metrics):
    metrics.engine_hello(HELLO)
    metrics.engine_stats(heartbeat(uptime_s=1.0, sm_busy_prefill_ratio=0.5, sm_busy_decode_ratio=0.25))
    metrics.engine_stats(heartbeat(uptime_s=3.0, sm_busy_prefill_ratio=0.0, sm_busy_decode_ratio=0.25))
    assert value(metrics, "pdmuxd_engine_sm_seconds_total", phase="prefill") == pytest.approx(66.0)
    assert value(metrics, "pdmuxd_engine_sm_seconds_total", phase="decode") == pytest.approx(99.0)

    metrics.engine_hello(HELLO)  # another engine, whose clock starts at 0
    metrics.engine_stats(heartbeat(uptime_s=1.0, sm_busy_decode_ratio=1.0))
    assert value(metrics, "pdmuxd_engine_sm_seconds_total", phase="decode") == pytest.approx(231.0)


@pytest.mark.parametrize(
    ("new_tokens", "name"),
    [(0, "<1K"), (999, "<1K"), (1000, "1K-4K"), (3999, "1K-4K"), (15_999, "4K-16K"), (16_000, ">=16K")],
)
def test_a_prompt_is_in_the_class_of_a_replay_when_its_length_is_on_an_edge(new_tokens, name):
    assert length_class(new_tokens) == name
    low, high = next((low, high) for each, low, high in LENGTH_CLASSES if each == name)
    assert low <= new_tokens
    assert high is None or new_tokens < high


def test_attainment_by_length_adds_up_to_all_when_requests_are_judged(metrics):
    for number, new_tokens in enumerate((90, 900, 2000, 5000, 20_000, 20_001)):
        late = {"ttft_s": 0.9} if number % 2 else {}
        metrics.request_judged(judge(record(new_tokens=new_tokens, **late)))
    metrics.request_judged(judge(record(tenant="bob", ttft_s=None, tbt_max_s=None, tbt_gaps=0)))
    for kind, all_of_them in (("met", 3), ("requests", 6)):
        by_length = {
            dict(labels)["new_tokens"]: count
            for (name, labels), count in samples(metrics).items()
            if name == f"pdmuxd_delivered_ttft_by_length_{kind}_total"
        }
        assert sum(by_length.values()) == all_of_them
        assert value(metrics, f"pdmuxd_delivered_ttft_{kind}_total", tenant="alice") == all_of_them
        assert set(by_length) == {"<1K", "1K-4K", "4K-16K", ">=16K"}
    metrics.use_tenants(("bob",))
    assert "by_length" not in "".join(name for name, _ in samples(metrics))
