"""Every metric that pdmuxd exports: name, kind, labels, what it says. A longer file, as it is a table.

Base units (seconds, tokens, ratios of 1), a bounded number of values for each label: `tenant` by
`admin.metrics_max_tenants`, the others by what the code can say. docs/metrics.md shows this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from pdmuxd.engine.link.durations import GROWTH, LOWEST_S

Kind = Literal["counter", "gauge", "histogram"]
T = ("tenant",)
GC = ("process", "generation")

ABORT_CAUSES = ("client_disconnected", "engine_lost", "shutdown", "first_byte_timeout", "defect")
"""Each has its series from the start: Prometheus sees no increase in one that begins with its first event."""

TTFT_BUCKETS_S = (
    *(0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5),
    *(2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0),
)
"""Fine where targets are; a percentile between two of them is interpolated. Above 10 s at most 50% apart, for
the p99.9 of an overload."""
TBT_MAX_BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
LAG_BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
GAP_EDGES = (*range(30, 60, 6), *range(60, 99, 2), *range(104, 153, 6))
"""Edges of the engine's own counts (`engine/link/durations.py`), so that no gap is counted in a wrong bucket:
17% apart between 10 and 200 ms, 59% outside, from 1 ms to 12 s."""
GAP_BUCKETS_S = tuple(round(LOWEST_S * GROWTH**edge, 6) for edge in GAP_EDGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One metric. `name` is the one that is exported, with `_total` for a counter."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query can use."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(self.name + suffix for suffix in ("_bucket", "_sum", "_count"))


def _counter(name: str, text: str, *labels: str) -> Definition:
    return Definition(name=f"pdmuxd_{name}_total", kind="counter", text=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Definition:
    return Definition(name=f"pdmuxd_{name}", kind="gauge", text=text, labels=labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Definition:
    return Definition(name=f"pdmuxd_{name}", kind="histogram", text=text, labels=labels, buckets=buckets)


GROUPS: dict[str, tuple[Definition, ...]] = {
    "From the gateway": (
        _counter(
            "requests",
            "Requests answered; status 499: the client left before an answer began.",
            *("tenant", "path", "status"),
        ),
        _counter(
            "refusals",
            "Requests refused by the gateway; `cause` is the error's `code`.",
            *("tenant", "cause"),
        ),
        _counter(
            "outcomes",
            "Requests by how they ended: `finished`, `limited` (429 by limits of the tenant or key), "
            "`refused` (429, 503 by the node), `expired`, `lost`, `failed`; `aborted` and `invalid` are the "
            "client's.",
            *("tenant", "outcome"),
        ),
        _gauge("quarantined", "Bodies, or all of a tenant as one, refused after two ends of engines.", *T),
        _gauge("requests_in_flight", "Places held under the limits: prompts times `n` of each request.", *T),
        _gauge("tenant_in_flight_limit", "Places that a tenant may hold, its `max_in_flight`.", *T),
        _gauge("node_in_flight_limit", "Places in all, `data.max_in_flight`."),
        _gauge("gateway_waiting_requests", "Requests without a first token, here and in the engine.", *T),
        _gauge("gateway_late_requests", "Of these, past their TTFT target: shows an overload first.", *T),
        _gauge("gateway_oldest_wait_seconds", "How long the oldest of the waiting has waited.", *T),
        _histogram(
            "gateway_ttfb_seconds",
            "A request's arrival to the first byte of the engine's answer.",
            TTFT_BUCKETS_S,
        ),
        _counter(
            "gateway_aborts",
            "Ended before the answer was complete: `client_disconnected`, `engine_lost` (upstream errors), "
            "`shutdown`, `first_byte_timeout`, `defect`.",
            "cause",
        ),
        _counter("gateway_abort_errors", "Aborts that the engine did not confirm."),
        _histogram("delivered_ttft_seconds", "Arrival here to the first token written.", TTFT_BUCKETS_S, *T),
        _histogram("delivered_tbt_seconds", "Gaps between tokens as written to clients.", GAP_BUCKETS_S, *T),
        _counter("delivered_ttft_met", "Requests whose first token was written in time.", *T),
        _counter("delivered_ttft_requests", "With a first token, or late without one.", *T),
        _counter(
            "delivered_ttft_by_length_met",
            "Of the next, those in time: whether long prompts pay for short ones.",
            *("tenant", "new_tokens"),
        ),
        _counter(
            "delivered_ttft_by_length_requests",
            "`delivered_ttft_requests` by prompt tokens not cached: `<1K`, `1K-4K`, `4K-16K`, `>=16K`.",
            *("tenant", "new_tokens"),
        ),
        _counter("delivered_tbt_gaps_met", "Gaps between writes within the target: attainment.", *T),
        _counter("e2e", "Requests whose whole answers were judged by a target.", *T),
        _counter("e2e_met", "Of these, whose last token was written in time.", *T),
        _counter("delivered_tbt_gaps", "Gaps between tokens as written to clients.", *T),
    ),
    "Of tokens that come straight from the scheduler": (
        _counter(
            "streams",
            "Streamed answers by the way of their tokens: `direct` or `http` (`engine.token_path`).",
            "token_path",
        ),
        _counter("direct_tokens", "Of `pdmuxd_output_tokens_total`, those that arrived `direct`."),
        _counter("direct_lost_steps", "Steps whose tokens the engine could not hand over."),
        _counter(
            "direct_fallbacks",
            "Answers that went on through the engine's front end, without a loss: their client did not read "
            "(`unread`), a step was `lost`, the engine was `disconnected`, the text differed (`mismatch`).",
            "cause",
        ),
        _gauge("direct_held_bytes", "Bytes of such answers that wait for their clients."),
        _gauge(
            "direct_steps_at_once",
            "Steps whose tokens are written to a client at once, where its target allows it; over 1 on a "
            "host without a processor for the daemon.",
        ),
        _gauge(
            "host_cpu_ratio",
            "Shares of the last second: the daemon's loop `worked`, or `waited` for a processor; any task of "
            "the host did (`pressed`); the hypervisor kept a processor (`stolen`); of the periods of a CPU "
            "quota, those in which it stopped the daemon and its engine (`throttled`).",
            "of",
        ),
        _gauge(
            "delivery_late_seconds",
            "By how much the p99 of gaps between tokens was longer at clients than in the engine, last "
            "minute; of a stricter promise its quantile. Absent under 2,000 gaps.",
        ),
        _gauge(
            "delivery_way_late_seconds",
            "The same of the p99 of gaps by the way of their tokens: `direct` from the scheduler, or `http` "
            "through the engine's front end.",
            "way",
        ),
        _gauge(
            "delivery_planned_seconds",
            "What steps leave of a TBT target for that, a quarter of it at most. Absent before it was "
            "measured.",
        ),
    ),
    "Of garbage collections": (
        _counter("gc_collections", "Collections since the process is ready to serve.", *GC),
        _counter("gc_seconds", "Time that they took: no token passes the process meanwhile.", *GC),
        _counter("gc_found_objects", "Objects that they freed.", *GC),
        _gauge("gc_longest_seconds", "The longest one.", *GC),
        _counter("gc_forced", "Collections while answers ran, since the process had grown.", "process"),
    ),
    "Of targets": (
        _gauge("slo_ttft_fixed_seconds", "The TTFT target of an empty prompt.", *T),
        _gauge("slo_ttft_per_1k_new_tokens_seconds", "What 1,000 prompt tokens that are not cached add.", *T),
        _gauge("slo_tbt_seconds", "The target for each gap between two tokens.", *T),
        _gauge("slo_e2e_seconds", "The target for whole answers, of tenants that have one.", *T),
        _gauge(
            "slo_attainment_ratio", "The share that has to meet these targets; of `_rest` the loosest.", *T
        ),
        _gauge("slo_version", "How often the tenant's targets were edited.", *T),
        _counter(
            "tbt_cost_prefill_seconds",
            "Prefill time lost to a TBT target, as predicted; none while capped.",
            *T,
        ),
        _gauge("tbt_cost_ratio", "Share of the last minutes that a TBT target costs, or would uncapped.", *T),
        _gauge("tbt_capped", "1 while steps are not planned for the tenant's TBT target.", *T),
    ),
    "From the engine's record of each request": (
        _counter(
            "engine_requests", "Requests ended: `finished`, `aborted`, `failed`.", *("tenant", "outcome")
        ),
        _counter("good_requests", "Finished, with TTFT, the p99 of the gaps and the whole in time.", *T),
        _counter("good_delivered_requests", "The same as clients saw them.", *T),
        _counter("good_forgiven_requests", "The same with one late gap of each forgiven.", *T),
        _histogram("ttft_seconds", "Arrival at the engine to first token.", TTFT_BUCKETS_S, *T),
        _histogram("queue_seconds", "Arrival at the engine to the start of prefill.", TTFT_BUCKETS_S),
        _counter("ttft_met", "Requests whose first token was in time.", *T),
        _counter("ttft_requests", "Requests with a first token.", *T),
        _histogram("tbt_seconds", "Gaps between tokens, each; the sum is to 4%.", GAP_BUCKETS_S, *T),
        _histogram("tbt_max_seconds", "A request's longest gap.", TBT_MAX_BUCKETS_S, *T),
        _counter("tbt_met", "Requests with every gap in time.", *T),
        _counter("tbt_requests", "Requests with at least one gap.", *T),
        _counter("tbt_gaps_met", "Gaps within the target.", *T),
        _counter("tbt_gaps", "Gaps between tokens.", *T),
        _counter("prompt_tokens", "Prompt tokens, reused ones included.", *T),
        _counter("reused_tokens", "Prompt tokens found in the prefix cache.", *T),
        _counter("output_tokens", "Tokens produced.", *T),
        _counter("cost", "What tokens cost by the price list, in its currency, as budgets count it.", *T),
    ),
    "Of the engine": (
        _gauge("engine_state", "1 for the state in force.", "state"),
        _gauge("engine_up", "1 while the engine serves."),
        _counter("engine_restarts", "Engines started after the first."),
        _gauge("settings_version", "Version of the settings: `wanted`, and `acked` by the engine.", "kind"),
        _gauge("engine_uptime_seconds", "Seconds since the engine started."),
        _gauge("engine_running", "Requests that decode."),
        _gauge("engine_waiting", "Requests that wait for prefill."),
        _gauge("engine_prefilling", "Requests in prefill."),
        _gauge(
            "engine_hidden",
            "Of those that wait, whom the policy does not see or may not begin; `reason`: `policy_change` "
            "(one waits to be in force), `kv_denied`, `long_prompt` (not whole in memory), `beyond_window`.",
            "reason",
        ),
        _gauge("engine_kv_used_tokens", "KV tokens in use."),
        _gauge("engine_kv_capacity_tokens", "KV tokens that fit."),
        _gauge("engine_cached_tokens", "KV tokens that the prefix cache holds, in use or evictable."),
        _gauge("engine_partition_id", "Index of the partition group in force."),
        _gauge("engine_prefill_sms", "SMs of the prefill partition."),
        _gauge("engine_decode_sms", "SMs of the decode partition."),
        _gauge("engine_sm_busy_ratio", "Share of SM time in use since the last heartbeat.", "phase"),
        _counter("engine_sm_seconds", "SM time in use: seconds times SMs.", "phase"),
        _gauge(
            "engine_gpu_clock_hertz",
            "Clock of the first GPU's SMs. One that falls under load makes every prediction late. "
            "Absent on the emulated GPU.",
        ),
        _gauge("engine_gpu_power_watts", "What the first GPU draws. Absent on the emulated GPU."),
        _counter(
            "shadow_decisions",
            "Decisions that a shadow policy was asked for; `differs`: `no`, or in what. Absent without one.",
            "differs",
        ),
        _counter(
            "shadow_late_decisions",
            "Of these, that miss the TBT target by prediction: of the policy in force and of its shadow.",
            "policy",
        ),
        _counter("engine_steps", "Engine steps. This and the next six start at 0 with each engine."),
        _counter("engine_switches", "Changes of the partition group."),
        _counter("engine_preemptions", "Prefills set aside for a shorter one."),
        _counter("engine_retractions", "Requests sent back to waiting because the KV pool was full."),
        _counter(
            "engine_dropped_records", "Telemetry records that the link dropped: attainment misses these."
        ),
        _counter(
            "engine_stalls",
            "Decode and fused steps that took far longer than steps of their size do: more than eight mean "
            "deviations, and 5 ms.",
        ),
        _counter(
            "engine_host_delays", "Steps for which the GPU waited for the host for more than a millisecond."
        ),
        _counter(
            "engine_stalls_by_cause",
            "Steps that took far longer, from the records that came, by what they are charged to: what the "
            "host did while the GPU waited for it (`input`, `results`, `decision`, `launch`, `collection`), "
            "a prefill that began beside the step, a change of the partition, or the device. Goes on over "
            "restarts of the engine.",
            "cause",
        ),
    ),
    "Of decisions and predictions": (
        _counter("decisions", "Steps that the policy decided, with why.", *("mode", "reason")),
        _gauge(
            "prediction_ratio",
            "Measured over predicted time of work that ran alone, last ten minutes; `quantile` 0.5 or 0.9.",
            *("work", "sms", "quantile"),
        ),
        _gauge("prediction_samples", "How many such pairs.", *("work", "sms")),
        _gauge("guard_cells", "Cells of the contention guard that decisions have used."),
        _gauge("guard_raised_cells", "Of these, those whose bound was raised by what was measured."),
        _gauge("guard_max_ratio", "The largest of their bounds: slowdown of decode beside prefill."),
    ),
    "Of alarms and the event stream": (
        _gauge("alarm", "1 while the alarm is raised; a burn alarm has its tenant.", *("kind", "tenant")),
        _counter("alarms_raised", "Alarms raised.", "kind"),
        _gauge(
            "incident",
            "1 while a tenant has an incident open; `cause` is the likely one, `unknown` if none is known.",
            *("tenant", "cause"),
        ),
        _counter("incidents_over", "Incidents that are over.", "cause"),
        _counter("events", "Events published, whoever follows.", "type"),
        _gauge("event_clients", "Clients that follow the events."),
        _counter("event_losses", "Events that a client did not get, and was told so; for each client."),
        _counter("history_write_failures", "Writes of the history that failed; each is tried again."),
        _counter("history_lost_rows", "Rows of the history thrown away as too many waited to be written."),
    ),
    "Of tracing": (
        _counter(
            "trace_spans",
            "Spans `exported` to the collector, or dropped: `queue_full`, `export_failed`..",
            "result",
        ),
    ),
    "Of the daemon itself": (
        _histogram("loop_lag_seconds", "How late the event loop is, twenty times a second.", LAG_BUCKETS_S),
    ),
    "Of both listeners": (
        _gauge("http_connections", "Connections that are open, of `data` and `admin`.", "listener"),
        _gauge("http_connections_limit", "Connections that may be open at once.", "listener"),
        _counter(
            "http_closed",
            "Connections refused or cut: the `code` of an error, or `evicted` (made room for another), "
            "`not_reading`, `unread_body`, `no_descriptors`.",
            *("listener", "cause"),
        ),
        _counter("http_auth_failures", "Requests with a wrong key or token, or none.", "listener"),
    ),
}

DEFINITIONS: dict[str, Definition] = {
    definition.name: definition for group in GROUPS.values() for definition in group
}


def counter(name: str, registry: CollectorRegistry) -> Counter:
    """A counter that is counted as things happen."""
    it = _of(name, "counter")
    return Counter(it.name, it.text, it.labels, registry=registry)


def histogram(name: str, registry: CollectorRegistry) -> Histogram:
    """A histogram that is counted as things happen."""
    it = _of(name, "histogram")
    return Histogram(it.name, it.text, it.labels, buckets=it.buckets, registry=registry)


def gauge_family(name: str) -> GaugeMetricFamily:
    """A gauge that is read when scraped."""
    it = _of(name, "gauge")
    return GaugeMetricFamily(it.name, it.text, labels=it.labels)


def counter_family(name: str) -> CounterMetricFamily:
    """A counter that is read when scraped."""
    it = _of(name, "counter")
    return CounterMetricFamily(it.name, it.text, labels=it.labels)


def histogram_family(name: str) -> HistogramMetricFamily:
    """A histogram that is read when scraped."""
    it = _of(name, "histogram")
    return HistogramMetricFamily(it.name, it.text, labels=it.labels)


def _of(name: str, kind: Kind) -> Definition:
    found = DEFINITIONS[name]
    assert found.kind == kind, f"{name} is a {found.kind}"  # noqa: S101 - a defect, not an input
    return found
