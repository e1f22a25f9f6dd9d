"""What is counted as things happen, on a registry of its own; `collectors.py` adds what is read when scraped.

A tenant appears as a label only while it exists; everything without a known tenant has an empty label. Engine
totals are the engine's own and start again at 0 with each engine, as Prometheus expects of a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

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

from pdmuxd.controlplane.events.outcomes import Outcome
from pdmuxd.controlplane.telemetry.judged import JudgedRequest, is_good
from pdmuxd.daemon.metrics.definitions import ABORT_CAUSES, counter, histogram
from pdmuxd.daemon.metrics.gaps import GapHistograms
from pdmuxd.daemon.metrics.tenants import TenantLabels
from pdmuxd.engine.core.types import Mode, Reason
from pdmuxd.engine.link.messages import EngineStats, Hello, IterationRecord, RequestRecord, StallCause

OTHER_PATH = "other"
CONTENT_TYPE = CONTENT_TYPE_LATEST
MAX_TENANTS = 100

_MET_TOLERANCE_S = 1e-9
_REASONS, _STALL_CAUSES = frozenset(Reason), frozenset(StallCause)
_MODES = frozenset(Mode)


LENGTHS = (("<1K", 1_000), ("1K-4K", 4_000), ("4K-16K", 16_000))
LONGEST = ">=16K"
"""Classes of prompt tokens that are not cached, and where each ends: the edges of a replay's classes."""


def length_class(new_tokens: int) -> str:
    """The class of a prompt."""
    return next((name for name, end in LENGTHS if new_tokens < end), LONGEST)


class Metrics:
    """All metrics that are counted as things happen. `max_tenants` have labels of their own."""

    def __init__(self, *, max_tenants: int = MAX_TENANTS) -> None:
        # A second series for each, which nothing here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self.tenants = TenantLabels(max_tenants)
        Info("pdmuxd_build", "The version that runs.", registry=registry).info({"version": version("pdmuxd")})
        ProcessCollector(namespace="pdmuxd", registry=registry)

        self._requests = counter("pdmuxd_requests_total", registry)
        self._refusals = counter("pdmuxd_refusals_total", registry)
        self._ended = counter("pdmuxd_outcomes_total", registry)
        self._ttfb = histogram("pdmuxd_gateway_ttfb_seconds", registry)
        self._early = counter("pdmuxd_gateway_aborts_total", registry)
        for cause in ABORT_CAUSES:
            self._early.labels(cause)
        self._abort_errors = counter("pdmuxd_gateway_abort_errors_total", registry)
        self._streams = counter("pdmuxd_streams_total", registry)

        self._known_outcomes: set[str] = set()
        """Labels that have all series: Prometheus sees no increase in one that begins with an event."""
        self._outcomes = counter("pdmuxd_engine_requests_total", registry)
        self._good = counter("pdmuxd_good_requests_total", registry)
        self._good_delivered = counter("pdmuxd_good_delivered_requests_total", registry)
        self._good_forgiven = counter("pdmuxd_good_forgiven_requests_total", registry)
        self._ttft = histogram("pdmuxd_ttft_seconds", registry)
        self._queue = histogram("pdmuxd_queue_seconds", registry)
        self._tbt_max = histogram("pdmuxd_tbt_max_seconds", registry)
        self._ttft_met = counter("pdmuxd_ttft_met_total", registry)
        self._ttft_all = counter("pdmuxd_ttft_requests_total", registry)
        self._tbt_met = counter("pdmuxd_tbt_met_total", registry)
        self._tbt_all = counter("pdmuxd_tbt_requests_total", registry)
        self._gaps_met = counter("pdmuxd_tbt_gaps_met_total", registry)
        self._gaps = counter("pdmuxd_tbt_gaps_total", registry)
        self._delivered_ttft = histogram("pdmuxd_delivered_ttft_seconds", registry)
        self._delivered_ttft_met = counter("pdmuxd_delivered_ttft_met_total", registry)
        self._delivered_ttft_all = counter("pdmuxd_delivered_ttft_requests_total", registry)
        self._by_length_met = counter("pdmuxd_delivered_ttft_by_length_met_total", registry)
        self._by_length_all = counter("pdmuxd_delivered_ttft_by_length_requests_total", registry)
        self._delivered_gaps_met = counter("pdmuxd_delivered_tbt_gaps_met_total", registry)
        self._e2e = counter("pdmuxd_e2e_total", registry)
        self._e2e_met = counter("pdmuxd_e2e_met_total", registry)
        self._delivered_gaps = counter("pdmuxd_delivered_tbt_gaps_total", registry)
        self._prompt = counter("pdmuxd_prompt_tokens_total", registry)
        self._reused = counter("pdmuxd_reused_tokens_total", registry)
        self._output = counter("pdmuxd_output_tokens_total", registry)
        self._cost = counter("pdmuxd_cost_total", registry)
        self._gap_histograms = GapHistograms("pdmuxd_tbt_seconds")
        self._delivered_gap_histograms = GapHistograms("pdmuxd_delivered_tbt_seconds")
        registry.register(self._gap_histograms)
        registry.register(self._delivered_gap_histograms)

        self._trace_spans = counter("pdmuxd_trace_spans_total", registry)
        self._decisions = counter("pdmuxd_decisions_total", registry)
        self._stalls = counter("pdmuxd_engine_stalls_by_cause_total", registry)
        for cause in StallCause:
            self._stalls.labels(cause.value)
        self._sm_seconds = counter("pdmuxd_engine_sm_seconds_total", registry)
        self._sms = 0
        self._uptime_s = 0.0

    def use_tenants(self, names: Iterable[str]) -> None:
        """Only `names` may be labels; the series of tenants that are gone are dropped."""
        for gone in self.tenants.use(names):
            self._gap_histograms.forget(gone)
            self._delivered_gap_histograms.forget(gone)
            self._known_outcomes.discard(gone)
            for metric in self._of_tenants():
                metric.remove_by_labels({"tenant": gone})

    def request_ended(self, tenant: str, path: str, status: int) -> None:
        """The gateway answered; `status` is 499 if the client left first."""
        self._requests.labels(self.tenants.of(tenant), path, str(status)).inc()

    def request_refused(self, tenant: str, cause: str) -> None:
        """The gateway refused a request; `cause` is the code of its error."""
        self._refusals.labels(self.tenants.of(tenant), cause).inc()

    def request_over(self, tenant: str, outcome: Outcome) -> None:
        """A request ended so; told once of each."""
        label = self.tenants.of(tenant)
        if label not in self._known_outcomes:
            self._known_outcomes.add(label)
            for each in Outcome:
                self._ended.labels(label, each.value)
        self._ended.labels(label, outcome.value).inc()

    def first_byte(self, ttfb_s: float) -> None:
        """The engine's answer began to arrive."""
        self._ttfb.observe(ttfb_s)

    def ended_early(self, cause: str) -> None:
        """A request did not get its complete answer."""
        self._early.labels(cause).inc()

    def stream_ended(self, token_path: str) -> None:
        """A streamed answer is over, whose tokens went that way."""
        self._streams.labels(token_path).inc()

    def abort_failed(self) -> None:
        """The engine did not confirm an abort."""
        self._abort_errors.inc()

    def trace_spans(self, result: str, spans: int) -> None:
        """What became of spans; called in any thread."""
        self._trace_spans.labels(result).inc(spans)

    def engine_hello(self, hello: Hello) -> None:
        """Another engine begins to count from 0."""
        self._sms, self._uptime_s = hello.total_sms, 0.0

    def engine_stats(self, stats: EngineStats) -> None:
        """The engine's heartbeat: its busy ratios hold since the last one."""
        passed_s = max(0.0, stats.uptime_s - self._uptime_s)
        self._uptime_s = stats.uptime_s
        for phase, ratio in (
            ("prefill", stats.sm_busy_prefill_ratio),
            ("decode", stats.sm_busy_decode_ratio),
        ):
            self._sm_seconds.labels(phase).inc(max(0.0, ratio) * passed_s * self._sms)

    def decision(self, record: IterationRecord) -> None:
        mode = record.mode if record.mode in _MODES else "other"
        self._decisions.labels(mode, record.reason if record.reason in _REASONS else "other").inc()
        if record.stall_cause in _STALL_CAUSES:
            self._stalls.labels(record.stall_cause).inc()

    def request_record(self, record: RequestRecord) -> None:
        """The engine reported the life of a request."""
        tenant = self.tenants.of(record.tenant)
        self._outcomes.labels(tenant, record.outcome).inc()
        self._good.labels(tenant).inc(is_good(record))
        self._prompt.labels(tenant).inc(record.new_tokens + record.reused_tokens)
        self._reused.labels(tenant).inc(record.reused_tokens)
        self._output.labels(tenant).inc(record.output_tokens)
        if record.queue_s is not None:
            self._queue.observe(record.queue_s)
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
            self._gap_histograms.add(tenant, record.tbt_counts)

    def cost(self, tenant: str, nanos: int) -> None:
        """A tenant's answer has cost that many billionths of the currency."""
        self._cost.labels(self.tenants.of(tenant)).inc(nanos / 1e9)

    def request_judged(self, judged: JudgedRequest) -> None:
        """Engine and gateway are done with a request: how its client saw it."""
        tenant = self.tenants.of(judged.record.tenant)
        self._good_delivered.labels(tenant).inc(judged.good)
        self._good_forgiven.labels(tenant).inc(judged.good_forgiven)
        if judged.ttft_s is not None:
            self._delivered_ttft.labels(tenant).observe(judged.ttft_s)
        if judged.ttft_missed is not None:
            self._delivered_ttft_all.labels(tenant).inc()
            self._delivered_ttft_met.labels(tenant).inc(not judged.ttft_missed)
            length = length_class(judged.record.new_tokens)
            self._by_length_all.labels(tenant, length).inc()
            self._by_length_met.labels(tenant, length).inc(not judged.ttft_missed)
        self._delivered_gap_histograms.add(tenant, judged.gap_counts)
        self._delivered_gaps.labels(tenant).inc(judged.gaps)
        self._delivered_gaps_met.labels(tenant).inc(judged.gaps - judged.gaps_missed)
        if judged.e2e_missed is not None:
            self._e2e.labels(tenant).inc()
            self._e2e_met.labels(tenant).inc(not judged.e2e_missed)

    def render(self) -> bytes:
        """The text that Prometheus scrapes; its type is CONTENT_TYPE."""
        return generate_latest(self.registry)

    def _of_tenants(self) -> tuple[Counter | Histogram, ...]:
        return (
            *(
                self._requests,
                self._refusals,
                self._ended,
                self._outcomes,
                self._good,
                self._good_delivered,
                self._good_forgiven,
                self._ttft,
                self._tbt_max,
            ),
            *(self._ttft_met, self._ttft_all, self._tbt_met, self._tbt_all, self._gaps_met, self._gaps),
            *(self._delivered_ttft, self._delivered_ttft_met, self._delivered_ttft_all),
            *(self._delivered_gaps_met, self._delivered_gaps, self._by_length_met, self._by_length_all),
            *(self._prompt, self._reused, self._output, self._cost, self._e2e, self._e2e_met),
        )
