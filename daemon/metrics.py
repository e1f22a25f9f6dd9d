"""What Prometheus sees, on a registry of its own. docs/operations.md explains every name.

A tenant appears as a label only while it exists; everything without a known tenant has an empty label. Engine
totals are the engine's own and start again at 0 with each engine, as Prometheus expects of a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdmuxd.controlplane.status import EngineState, EngineStatus
from pdmuxd.engine.link.messages import EngineStats, RequestRecord

OTHER_PATH = "other"
NO_TENANT = ""
CONTENT_TYPE = CONTENT_TYPE_LATEST

_TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TBT_BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
_MET_TOLERANCE_S = 1e-9


class Metrics:
    """All metrics that are counted as things happen; `collect_*` adds what is read when scraped."""

    def __init__(self) -> None:
        # A second series for each, which nothing here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._tenants: frozenset[str] = frozenset()
        self._tenant_metrics: list[Counter | Histogram] = []
        Info("pdmuxd_build", "The version that runs.", registry=self.registry).info(
            {"version": version("pdmuxd")}
        )
        ProcessCollector(namespace="pdmuxd", registry=self.registry)

        self._requests = self._counter("pdmuxd_requests", "Requests answered.", "tenant", "path", "status")
        self._ttft = self._histogram("pdmuxd_ttft_seconds", "Arrival to first token.", _TTFT_BUCKETS_S)
        self._tbt_max = self._histogram("pdmuxd_tbt_max_seconds", "A request's longest gap.", _TBT_BUCKETS_S)
        self._outcomes = self._counter("pdmuxd_engine_requests", "Requests ended.", "tenant", "outcome")
        self._ttft_met = self._counter("pdmuxd_ttft_met", "Requests whose first token was in time.", "tenant")
        self._ttft_all = self._counter("pdmuxd_ttft_requests", "Requests with a first token.", "tenant")
        self._tbt_met = self._counter("pdmuxd_tbt_met", "Requests with every gap in time.", "tenant")
        self._tbt_all = self._counter("pdmuxd_tbt_requests", "Requests with at least one gap.", "tenant")
        self._gaps_met = self._counter("pdmuxd_tbt_gaps_met", "Gaps within the target.", "tenant")
        self._gaps = self._counter("pdmuxd_tbt_gaps", "Gaps between tokens.", "tenant")
        self._prompt = self._counter("pdmuxd_prompt_tokens", "Prompt tokens, reused ones included.", "tenant")
        self._reused = self._counter("pdmuxd_reused_tokens", "Prompt tokens found in the cache.", "tenant")
        self._output = self._counter("pdmuxd_output_tokens", "Tokens produced.", "tenant")

        self._ttfb = Histogram(
            "pdmuxd_gateway_ttfb_seconds",
            "A request's arrival to the first byte of the engine's answer.",
            buckets=_TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self._early = Counter(
            "pdmuxd_gateway_aborts",
            "Requests that ended before their answer was complete.",
            ("cause",),
            registry=self.registry,
        )
        self._abort_errors = Counter(
            "pdmuxd_gateway_abort_errors", "Aborts that the engine did not confirm.", registry=self.registry
        )

    def use_tenants(self, names: Iterable[str]) -> None:
        """Only `names` may be labels; the series of tenants that are gone are dropped."""
        known = frozenset(names)
        for gone in self._tenants - known:
            for metric in self._tenant_metrics:
                metric.remove_by_labels({"tenant": gone})
        self._tenants = known

    def request_ended(self, tenant: str, path: str, status: int) -> None:
        """The gateway answered; `status` is 499 if the client left first."""
        self._requests.labels(self._label(tenant), path, str(status)).inc()

    def first_byte(self, ttfb_s: float) -> None:
        """The engine's answer began to arrive."""
        self._ttfb.observe(ttfb_s)

    def ended_early(self, cause: str) -> None:
        """A request did not get its complete answer."""
        self._early.labels(cause).inc()

    def abort_failed(self) -> None:
        """The engine did not confirm an abort."""
        self._abort_errors.inc()

    def request_record(self, record: RequestRecord) -> None:
        """The engine reported the life of a request."""
        tenant = self._label(record.tenant)
        self._outcomes.labels(tenant, record.outcome).inc()
        self._prompt.labels(tenant).inc(record.new_tokens + record.reused_tokens)
        self._reused.labels(tenant).inc(record.reused_tokens)
        self._output.labels(tenant).inc(record.output_tokens)
        if record.ttft_s is not None:
            self._ttft.labels(tenant).observe(record.ttft_s)
            self._ttft_all.labels(tenant).inc()
            self._ttft_met.labels(tenant).inc(record.ttft_s <= record.ttft_target_s + _MET_TOLERANCE_S)
        if record.tbt_max_s is not None:
            self._tbt_max.labels(tenant).observe(record.tbt_max_s)
            self._tbt_all.labels(tenant).inc()
            self._tbt_met.labels(tenant).inc(record.tbt_gaps_met >= record.tbt_gaps)
            self._gaps.labels(tenant).inc(record.tbt_gaps)
            self._gaps_met.labels(tenant).inc(record.tbt_gaps_met)

    def collect_engine(self, status: Callable[[], EngineStatus]) -> None:
        """Show the engine's status at each scrape."""
        self.registry.register(_EngineCollector(status))

    def collect_in_flight(self, in_flight: Callable[[], Mapping[str, int]]) -> None:
        """Show the requests in flight per tenant at each scrape."""
        self.registry.register(_InFlightCollector(in_flight, self._label))

    def render(self) -> bytes:
        """The text that Prometheus scrapes; its type is CONTENT_TYPE."""
        return generate_latest(self.registry)

    def _label(self, tenant: str) -> str:
        return tenant if tenant in self._tenants else NO_TENANT

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        counter = Counter(name, text, labels, registry=self.registry)
        self._tenant_metrics.append(counter)
        return counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(name, text, ("tenant",), buckets=buckets, registry=self.registry)
        self._tenant_metrics.append(histogram)
        return histogram


class _InFlightCollector(Collector):
    def __init__(self, in_flight: Callable[[], Mapping[str, int]], label: Callable[[str], str]) -> None:
        self._in_flight = in_flight
        self._label = label

    def collect(self) -> Iterator[Metric]:
        totals: dict[str, int] = {}
        for tenant, count in self._in_flight().items():
            totals[self._label(tenant)] = totals.get(self._label(tenant), 0) + count
        family = GaugeMetricFamily("pdmuxd_requests_in_flight", "Requests in flight.", labels=("tenant",))
        for tenant, count in totals.items():
            family.add_metric((tenant,), count)
        yield family


_STATS_GAUGES = {
    "running": "Requests that decode.",
    "waiting": "Requests that wait for prefill.",
    "prefilling": "Requests in prefill.",
    "kv_used_tokens": "KV tokens in use.",
    "kv_capacity_tokens": "KV tokens that fit.",
    "cached_tokens": "KV tokens that the prefix cache holds, in use or evictable.",
    "partition_id": "Index of the partition group in force.",
    "prefill_sms": "SMs of the prefill partition.",
    "decode_sms": "SMs of the decode partition.",
}
_STATS_COUNTERS = {
    "steps": "Engine steps.",
    "switches": "Changes of the partition group.",
    "preemptions": "Prefills set aside for a shorter one.",
    "retractions": "Requests sent back to waiting because the KV pool was full.",
    "dropped_records": "Telemetry records that the engine's link end dropped.",
}


class _EngineCollector(Collector):
    def __init__(self, status: Callable[[], EngineStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        states = GaugeMetricFamily("pdmuxd_engine_state", "1 for the state in force.", labels=("state",))
        for state in get_args(EngineState):
            states.add_metric((state,), float(state == status.state))
        yield states
        yield _gauge("up", "1 while the engine serves.", float(status.state == "serving"))
        yield _counter("restarts", "Engines started after the first.", status.restarts)
        versions = GaugeMetricFamily(
            "pdmuxd_settings_version", "Version of the settings wanted, and acknowledged.", labels=("kind",)
        )
        versions.add_metric(("wanted",), status.wanted_version)
        versions.add_metric(("acked",), status.acked_version)
        yield versions
        if status.stats is not None and status.state in ("serving", "draining"):
            yield from _stats_families(status.stats)


def _stats_families(stats: EngineStats) -> Iterator[Metric]:
    yield _gauge("uptime_seconds", "Seconds since the engine started.", stats.uptime_s)
    for name, text in _STATS_GAUGES.items():
        yield _gauge(name, text, getattr(stats, name))
    for name, text in _STATS_COUNTERS.items():
        yield _counter(name, text, getattr(stats, name))
    busy = GaugeMetricFamily("pdmuxd_engine_sm_busy_ratio", "Share of SM time in use.", labels=("phase",))
    busy.add_metric(("prefill",), stats.sm_busy_prefill_ratio)
    busy.add_metric(("decode",), stats.sm_busy_decode_ratio)
    yield busy
    if stats.gpu_clock_mhz is not None:
        yield _gauge("gpu_clock_hertz", "Clock of the first GPU's SMs.", stats.gpu_clock_mhz * 1e6)
    if stats.gpu_power_w is not None:
        yield _gauge("gpu_power_watts", "What the first GPU draws.", stats.gpu_power_w)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pdmuxd_engine_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"pdmuxd_engine_{name}", text, value=value)
