"""What Prometheus sees of requests, tenants and the engine."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdmuxd.controlplane.status import EngineStatus
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.engine.link.messages import EngineStats, RequestRecord

STATS = EngineStats(**dict.fromkeys(EngineStats.__struct_fields__, 0) | {"policy": "muxwise", "steps": 7})


def record(**changes):
    values = {
        "request_id": "r",
        "tenant": "alice",
        "outcome": "finished",
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
        "retractions": 0,
        "slo_version": 1,
    }
    return RequestRecord(**values | changes)


def samples(metrics):
    """By name and labels."""
    text = metrics.render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics, name, **labels):
    return samples(metrics)[name, tuple(sorted(labels.items()))]


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


def test_the_engine_is_shown_as_it_is_when_scraped(metrics):
    status = EngineStatus(state="down", since_s=0.0, restarts=2, wanted_version=9, acked_version=8)
    metrics.collect_engine(lambda: status)
    assert value(metrics, "pdmuxd_engine_up") == 0
    assert value(metrics, "pdmuxd_engine_state", state="down") == 1
    assert value(metrics, "pdmuxd_engine_state", state="serving") == 0
    assert value(metrics, "pdmuxd_engine_restarts_total") == 2
    assert value(metrics, "pdmuxd_settings_version", kind="wanted") == 9
    assert value(metrics, "pdmuxd_settings_version", kind="acked") == 8
    assert ("pdmuxd_engine_steps_total", ()) not in samples(metrics)

    status = EngineStatus(state="serving", since_s=0.0, stats=STATS)
    assert value(metrics, "pdmuxd_engine_up") == 1
    assert value(metrics, "pdmuxd_engine_steps_total") == 7


def test_the_clock_of_the_gpu_is_shown_when_the_driver_says_it(metrics):
    silent = msgspec.structs.replace(STATS, gpu_clock_mhz=None, gpu_power_w=None)
    status = EngineStatus(state="serving", since_s=0.0, stats=silent)
    metrics.collect_engine(lambda: status)
    assert not [name for name, _ in samples(metrics) if "gpu" in name]

    throttled = msgspec.structs.replace(STATS, gpu_clock_mhz=1395, gpu_power_w=698.5)
    status = EngineStatus(state="serving", since_s=0.0, stats=throttled)
    assert value(metrics, "pdmuxd_engine_gpu_clock_hertz") == 1_395_000_000
    assert value(metrics, "pdmuxd_engine_gpu_power_watts") == 698.5


def test_unknown_tenants_share_one_series_of_requests_in_flight(metrics):
    metrics.collect_in_flight(lambda: {"alice": 2, "x": 1, "y": 3})
    assert value(metrics, "pdmuxd_requests_in_flight", tenant="alice") == 2
    assert value(metrics, "pdmuxd_requests_in_flight", tenant="") == 4


def test_every_name_has_the_prefix_and_a_unit_in_seconds(metrics):
    metrics.collect_engine(lambda: EngineStatus(state="serving", since_s=0.0, stats=STATS))
    metrics.collect_in_flight(lambda: {"alice": 1})
    metrics.request_record(record())
    names = {name for name, _ in samples(metrics)}
    assert all(name.startswith("pdmuxd_") for name in names)
    assert not [name for name in names if name.endswith(("_ms", "_s"))]
