"""What Prometheus sees of the engine, of targets, predictions and alarms, at the moment of a scrape."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from scrapes import samples, value
from telemetry_feeds import HandClock, heartbeat, step, telemetry

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.daemon.duties.host_load import HostCollector, HostLoad
from pdmuxd.daemon.httpd.metrics import HttpCollector
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import (
    DeliveryCollector,
    EngineCollector,
    QuarantineCollector,
    TbtCostCollector,
    TokenCollector,
    collectors,
)
from pdmuxd.daemon.metrics.definitions import DEFINITIONS, histogram
from pdmuxd.daemon.metrics.garbage import GarbageCounts
from pdmuxd.daemon.tokens.counts import FallbackCause, TokenCounts
from pdmuxd.engine.core.observing import Hidden
from pdmuxd.engine.link.garbage import GarbageReport, Generation
from pdmuxd.engine.link.messages import ShadowCounts

STATS = heartbeat(steps=7)
SHADOW = ShadowCounts(**dict.fromkeys(ShadowCounts.__struct_fields__, 0) | {"policy": "muxwise"})


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def fed(clock):
    """Telemetry of `chat`, and metrics that show it."""
    return telemetry(clock)


@pytest.fixture
def metrics(fed):
    made = Metrics()
    made.use_tenants(fed.directory.tenants)
    for collector in collectors(fed, made.tenants, node_limit=1024):
        made.registry.register(collector)
    return made


def of_engine(status):
    metrics = Metrics()
    metrics.registry.register(EngineCollector(status))
    return metrics


def test_every_family_is_defined_and_every_definition_is_exported(fed):
    stats = msgspec.structs.replace(STATS, gpu_clock_mhz=1395, gpu_power_w=698.5, shadow=SHADOW)
    fed.status = lambda: EngineStatus(state="serving", since_s=0.0, stats=stats)
    metrics = Metrics()
    costs = TbtCostCollector(SimpleNamespace(cost_s={}, cost_ratios={}, caps=dict), metrics.tenants)
    histogram("pdmuxd_loop_lag_seconds", metrics.registry)
    late = DeliveryCollector(SimpleNamespace(measured_s=0.004, planned_s=0.003, by_way_s={"direct": 0.001}))
    quarantine = QuarantineCollector(dict, metrics.tenants)
    counts = TokenCounts()
    tokens, garbage = TokenCollector(counts), GarbageCounts(list)
    host = HostCollector(HostLoad(counts.pace), counts.pace)
    others = (late, HttpCollector(()), costs, tokens, garbage, quarantine, host)
    for collector in (*collectors(fed, metrics.tenants, node_limit=1024), *others):
        metrics.registry.register(collector)
    exported = {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, family.documentation)
        for family in metrics.registry.collect()
        if not family.name.startswith(("pdmuxd_build", "pdmuxd_process_"))
    }
    assert exported == {name: (it.kind, it.text) for name, it in DEFINITIONS.items()}


def test_names_are_in_base_units():
    assert not [name for name in DEFINITIONS if not name.startswith("pdmuxd_")]
    assert not [name for name in DEFINITIONS if name.endswith(("_ms", "_s", "_mhz", "_percent"))]
    assert all(name.endswith("_total") == (it.kind == "counter") for name, it in DEFINITIONS.items())


def test_tokens_from_the_scheduler_are_shown_over_all_engines():
    counts = TokenCounts()
    metrics = Metrics()
    metrics.registry.register(TokenCollector(counts))
    counts.tokens, counts.lost_steps = 7, 1
    counts.fallbacks[FallbackCause.LOST] += 3
    first, second = (lambda: 40), (lambda: 2)
    counts.hold(first)
    counts.hold(second)
    assert value(metrics, "pdmuxd_direct_tokens_total") == 7
    assert value(metrics, "pdmuxd_direct_lost_steps_total") == 1
    assert value(metrics, "pdmuxd_direct_fallbacks_total", cause="lost") == 3
    assert value(metrics, "pdmuxd_direct_fallbacks_total", cause="unread") == 0
    assert value(metrics, "pdmuxd_direct_held_bytes") == 42
    counts.release(first)
    counts.release(first)
    assert value(metrics, "pdmuxd_direct_held_bytes") == 2


def test_collections_are_shown_by_process_and_generation():
    generations = (
        Generation(count=9, total_s=0.5, longest_s=0.1),
        Generation(),
        Generation(count=1, found=3),
    )
    reports = [GarbageReport(process="http", pid=7, generations=generations, forced=1)]
    metrics = Metrics()
    metrics.registry.register(GarbageCounts(lambda: reports))
    assert value(metrics, "pdmuxd_gc_collections_total", process="http", generation="0") == 9
    assert value(metrics, "pdmuxd_gc_seconds_total", process="http", generation="0") == 0.5
    assert value(metrics, "pdmuxd_gc_longest_seconds", process="http", generation="0") == 0.1
    assert value(metrics, "pdmuxd_gc_collections_total", process="http", generation="2") == 1
    assert value(metrics, "pdmuxd_gc_found_objects_total", process="http", generation="2") == 3
    assert value(metrics, "pdmuxd_gc_forced_total", process="http") == 1


def test_the_engine_is_shown_as_it_is_when_scraped():
    status = EngineStatus(state="down", since_s=0.0, restarts=2, wanted_version=9, acked_version=8)
    metrics = of_engine(lambda: status)
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
    assert value(metrics, "pdmuxd_engine_hidden", reason="kv_denied") == 0

    hiding = msgspec.structs.replace(STATS, hidden=Hidden(kv_denied=3))
    status = EngineStatus(state="serving", since_s=0.0, stats=hiding)
    assert value(metrics, "pdmuxd_engine_hidden", reason="kv_denied") == 3


def test_the_clock_of_the_gpu_is_shown_when_the_driver_says_it():
    silent = msgspec.structs.replace(STATS, gpu_clock_mhz=None, gpu_power_w=None)
    status = EngineStatus(state="serving", since_s=0.0, stats=silent)
    metrics = of_engine(lambda: status)
    assert not [name for name, _ in samples(metrics) if "gpu" in name]

    throttled = msgspec.structs.replace(STATS, gpu_clock_mhz=1395, gpu_power_w=698.5)
    status = EngineStatus(state="serving", since_s=0.0, stats=throttled)
    assert value(metrics, "pdmuxd_engine_gpu_clock_hertz") == 1_395_000_000
    assert value(metrics, "pdmuxd_engine_gpu_power_watts") == 698.5


def test_unknown_tenants_share_one_series_of_requests_in_flight(fed, metrics):
    fed.in_flight = lambda: {"chat": 2, "x": 1, "y": 3}
    assert value(metrics, "pdmuxd_requests_in_flight", tenant="chat") == 2
    assert value(metrics, "pdmuxd_requests_in_flight", tenant="") == 4
    assert value(metrics, "pdmuxd_node_in_flight_limit") == 1024


def test_what_is_quarantined_is_shown_by_tenant_with_zeros(metrics):
    held = {"chat": 2, "nobody": 1}
    metrics.registry.register(QuarantineCollector(lambda: held, metrics.tenants))
    assert value(metrics, "pdmuxd_quarantined", tenant="chat") == 2
    assert value(metrics, "pdmuxd_quarantined", tenant="") == 1
    held.clear()
    assert value(metrics, "pdmuxd_quarantined", tenant="chat") == 0


def test_targets_are_gauges(metrics):
    of_chat = {
        "slo_ttft_fixed_seconds": 0.5,
        "slo_ttft_per_1k_new_tokens_seconds": 0.8,
        "slo_tbt_seconds": 0.04,
        "slo_attainment_ratio": 0.99,
        "slo_version": 1,
        "tenant_in_flight_limit": 8,
    }
    assert {name: value(metrics, f"pdmuxd_{name}", tenant="chat") for name in of_chat} == of_chat


def test_the_oldest_wait_grows_until_the_first_byte(fed, metrics, clock):
    fed.on_begin("r1", tenant="chat", path="/generate")
    clock.turn(3.0)
    fed.on_begin("r2", tenant="chat", path="/generate")
    clock.turn(2.0)
    assert value(metrics, "pdmuxd_gateway_waiting_requests", tenant="chat") == 2
    assert value(metrics, "pdmuxd_gateway_oldest_wait_seconds", tenant="chat") == pytest.approx(5.0)
    for request_id in ("r1", "r2"):
        fed.on_read(request_id, is_streamed=True, body_bytes=100, read_s=0.0)
    assert value(metrics, "pdmuxd_gateway_late_requests", tenant="chat") == 2
    fed.on_first_byte("r1")
    assert value(metrics, "pdmuxd_gateway_oldest_wait_seconds", tenant="chat") == pytest.approx(2.0)
    fed.on_answered("r2", status=200)
    assert value(metrics, "pdmuxd_gateway_oldest_wait_seconds", tenant="chat") == 0
    assert value(metrics, "pdmuxd_gateway_waiting_requests", tenant="chat") == 0


def test_predictions_and_the_guard_are_shown_as_they_were_measured(fed, metrics):
    alone = step(prefill_new_tokens=0, guard_ratio=None, predicted_decode_s=0.02, measured_step_s=0.024)
    for record in (alone, step(guard_ratio=1.2), step(guard_ratio=1.4)):
        fed.on_message(record)
    assert value(
        metrics, "pdmuxd_prediction_ratio", work="decode", sms="36", quantile="0.5"
    ) == pytest.approx(1.2)
    assert value(metrics, "pdmuxd_prediction_samples", work="decode", sms="36") == 1
    assert value(metrics, "pdmuxd_guard_cells") == 1
    assert value(metrics, "pdmuxd_guard_raised_cells") == 1
    assert value(metrics, "pdmuxd_guard_max_ratio") == pytest.approx(1.4)


def test_the_loosest_targets_are_shown_for_tenants_without_a_series_of_their_own(clock: HandClock) -> None:
    known = telemetry(clock, a=0.02, b=0.04, c=0.08)
    made = Metrics(max_tenants=1)
    made.use_tenants(known.directory.tenants)
    made.tenants.of("a")
    for collector in collectors(known, made.tenants, node_limit=1024):
        made.registry.register(collector)
    assert value(made, "pdmuxd_slo_tbt_seconds", tenant="a") == 0.02
    assert value(made, "pdmuxd_slo_tbt_seconds", tenant="_rest") == 0.08
    assert value(made, "pdmuxd_slo_attainment_ratio", tenant="_rest") == 0.99
