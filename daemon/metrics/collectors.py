"""What is read at each scrape: the engine, the places held, targets, predictions, alarms, events.

Scrapes are answered in a thread of their own: what is iterated here is copied in one step first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol, get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pdmuxd.controlplane.events.messages import AlarmKind, EventType
from pdmuxd.controlplane.node.engine_status import EngineState, EngineStatus
from pdmuxd.controlplane.telemetry.delivery import Way
from pdmuxd.controlplane.telemetry.slo_violations import Cause
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.metrics.definitions import DEFINITIONS, counter_family, gauge_family
from pdmuxd.daemon.metrics.tenants import REST, TenantLabels
from pdmuxd.daemon.tokens.counts import FallbackCause, TokenCounts
from pdmuxd.engine.link.messages import EngineStats, ShadowCounts

_STATS_GAUGES = (
    *("running", "waiting", "prefilling", "kv_used_tokens", "kv_capacity_tokens", "cached_tokens"),
    *("partition_id", "prefill_sms", "decode_sms"),
)
_STATS_COUNTERS = (
    *("steps", "switches", "preemptions", "retractions", "dropped_records"),
    *("stalls", "host_delays"),
)
_OF_TENANT = (
    *("pdmuxd_slo_ttft_fixed_seconds", "pdmuxd_slo_ttft_per_1k_new_tokens_seconds", "pdmuxd_slo_tbt_seconds"),
    *("pdmuxd_slo_attainment_ratio", "pdmuxd_slo_version", "pdmuxd_tenant_in_flight_limit"),
)


def _of_tenant(tenant: TenantRecord) -> tuple[float, ...]:
    slo = tenant.slo
    return (
        *(slo.ttft_fixed_s, slo.ttft_per_1k_new_tokens_s, slo.tbt_s),
        *(slo.attainment_ratio, tenant.slo_version, tenant.max_in_flight),
    )


def _of_rest(tenants: Sequence[TenantRecord]) -> dict[str, float]:
    """The loosest of the targets and of the promises: what was promised to each of these tenants."""
    slos = [tenant.slo for tenant in tenants]
    return {
        "pdmuxd_slo_ttft_fixed_seconds": max(slo.ttft_fixed_s for slo in slos),
        "pdmuxd_slo_ttft_per_1k_new_tokens_seconds": max(slo.ttft_per_1k_new_tokens_s for slo in slos),
        "pdmuxd_slo_tbt_seconds": max(slo.tbt_s for slo in slos),
        "pdmuxd_slo_attainment_ratio": min(slo.attainment_ratio for slo in slos),
    }


def collectors(telemetry: Telemetry, tenants: TenantLabels, *, node_limit: int) -> tuple[Collector, ...]:
    """All of this file; `node_limit` is how many places the gateway has."""
    return (
        EngineCollector(telemetry.status),
        LoadCollector(telemetry, tenants, node_limit=node_limit),
        TargetsCollector(telemetry, tenants),
        PredictionCollector(telemetry),
        AlarmCollector(telemetry, tenants),
    )


class EngineCollector(Collector):
    """The engine's state, and its last heartbeat while it serves."""

    def __init__(self, status: Callable[[], EngineStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        status = self._status()
        states = gauge_family("pdmuxd_engine_state")
        for state in get_args(EngineState):
            states.add_metric((state,), float(state == status.state))
        yield states
        yield _one("pdmuxd_engine_up", float(status.state == "serving"))
        yield _one("pdmuxd_engine_restarts_total", status.restarts)
        versions = gauge_family("pdmuxd_settings_version")
        versions.add_metric(("wanted",), status.wanted_version)
        versions.add_metric(("acked",), status.acked_version)
        yield versions
        if status.stats is not None and status.state in ("serving", "draining"):
            yield from _stats_families(status.stats)


def _stats_families(stats: EngineStats) -> Iterator[Metric]:
    yield _one("pdmuxd_engine_uptime_seconds", stats.uptime_s)
    for name in _STATS_GAUGES:
        yield _one(f"pdmuxd_engine_{name}", getattr(stats, name))
    for name in _STATS_COUNTERS:
        yield _one(f"pdmuxd_engine_{name}_total", getattr(stats, name))
    hidden = gauge_family("pdmuxd_engine_hidden")
    for reason, count in asdict(stats.hidden).items():
        hidden.add_metric((reason,), count)
    yield hidden
    busy = gauge_family("pdmuxd_engine_sm_busy_ratio")
    busy.add_metric(("prefill",), stats.sm_busy_prefill_ratio)
    busy.add_metric(("decode",), stats.sm_busy_decode_ratio)
    yield busy
    if stats.gpu_clock_mhz is not None:
        yield _one("pdmuxd_engine_gpu_clock_hertz", stats.gpu_clock_mhz * 1e6)
    if stats.gpu_power_w is not None:
        yield _one("pdmuxd_engine_gpu_power_watts", stats.gpu_power_w)
    if stats.shadow is not None:
        yield from _shadow_families(stats.shadow)


def _shadow_families(counts: ShadowCounts) -> Iterator[Metric]:
    decisions = counter_family("pdmuxd_shadow_decisions_total")
    differing = {"mode": counts.other_mode, "split": counts.other_split, "requests": counts.other_requests}
    for differs, count in {"no": counts.same, **differing}.items():
        decisions.add_metric((differs,), count)
    yield decisions
    late = counter_family("pdmuxd_shadow_late_decisions_total")
    late.add_metric(("in_force",), counts.late)
    late.add_metric(("shadow",), counts.shadow_late)
    yield late


class DeliveryLate(Protocol):
    """Tells by how much gaps between tokens are longer at clients; None where it is not known."""

    measured_s: float | None
    planned_s: float | None
    by_way_s: dict[Way, float]


class DeliveryCollector(Collector):
    """What delivery adds to a gap between tokens, and what steps leave for it."""

    def __init__(self, late: DeliveryLate) -> None:
        self._late = late

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        if self._late.measured_s is not None:
            yield _one("pdmuxd_delivery_late_seconds", self._late.measured_s)
        if self._late.planned_s is not None:
            yield _one("pdmuxd_delivery_planned_seconds", self._late.planned_s)
        ways = gauge_family("pdmuxd_delivery_way_late_seconds")
        for way, late_s in self._late.by_way_s.items():
            ways.add_metric((way,), late_s)
        yield ways


class TokenCollector(Collector):
    """Tokens that came straight from engines' schedulers."""

    def __init__(self, counts: TokenCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        counts = self._counts
        yield _one("pdmuxd_direct_tokens_total", counts.tokens)
        yield _one("pdmuxd_direct_lost_steps_total", counts.lost_steps)
        fallbacks = counter_family("pdmuxd_direct_fallbacks_total")
        for cause in FallbackCause:
            fallbacks.add_metric((cause.value,), counts.fallbacks[cause])
        yield fallbacks
        yield _one("pdmuxd_direct_held_bytes", counts.held_bytes)


class TbtCosts(Protocol):
    """What TBT targets cost, by tenant."""

    @property
    def cost_s(self) -> Mapping[str, float]:
        """Seconds of prefill that a target has cost."""

    @property
    def cost_ratios(self) -> Mapping[str, float]:
        """The share of the last minutes that it costs, or would if it were not capped."""

    def caps(self) -> Mapping[str, object]:
        """The tenants that are capped."""


class TbtCostCollector(Collector):
    """What the strictest TBT targets cost in prefill time, and who is capped for it."""

    def __init__(self, costs: TbtCosts, tenants: TenantLabels) -> None:
        self._costs = costs
        self._tenants = tenants

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        costs, capped = self._costs, self._costs.caps()
        lost = counter_family("pdmuxd_tbt_cost_prefill_seconds_total")
        for label, seconds in self._totals(costs.cost_s).items():
            lost.add_metric((label,), seconds)
        yield lost
        ratios, are_capped = gauge_family("pdmuxd_tbt_cost_ratio"), gauge_family("pdmuxd_tbt_capped")
        for name in sorted(self._tenants.own):
            ratios.add_metric((name,), costs.cost_ratios.get(name, 0.0))
            are_capped.add_metric((name,), float(name in capped))
        yield from (ratios, are_capped)

    def _totals(self, by_tenant: Mapping[str, float]) -> dict[str, float]:
        totals = dict.fromkeys(sorted(self._tenants.own), 0.0)
        for tenant, value in dict(by_tenant).items():
            label = self._tenants.of(tenant)
            totals[label] = totals.get(label, 0.0) + value
        return totals


class QuarantineCollector(Collector):
    """What is refused since it was in flight when two engines ended."""

    def __init__(self, held_by_tenant: Callable[[], Mapping[str, int]], tenants: TenantLabels) -> None:
        self._held_by_tenant = held_by_tenant
        self._tenants = tenants

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        yield _sums("pdmuxd_quarantined", self._held_by_tenant(), self._tenants)


class LoadCollector(Collector):
    """Places that are held and how many there are, by tenant and in all; requests without an answer yet."""

    def __init__(self, telemetry: Telemetry, tenants: TenantLabels, *, node_limit: int) -> None:
        self._telemetry = telemetry
        self._tenants = tenants
        self._node_limit = node_limit

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        telemetry = self._telemetry
        yield _sums("pdmuxd_requests_in_flight", telemetry.in_flight(), self._tenants)
        open_now = telemetry.open_counts(telemetry.clock())
        waiting = {tenant: counts.waiting for tenant, counts in open_now.items()}
        late = {tenant: counts.late for tenant, counts in open_now.items()}
        yield _sums("pdmuxd_gateway_waiting_requests", waiting, self._tenants)
        yield _sums("pdmuxd_gateway_late_requests", late, self._tenants)
        oldest = gauge_family("pdmuxd_gateway_oldest_wait_seconds")
        longest: dict[str, float] = {}
        for tenant, counts in open_now.items():
            label = self._tenants.of(tenant)
            longest[label] = max(counts.oldest_wait_s, longest.get(label, 0.0))
        for label in sorted({*longest, *self._tenants.own}):
            oldest.add_metric((label,), longest.get(label, 0.0))
        yield oldest
        yield _one("pdmuxd_node_in_flight_limit", self._node_limit)


def _sums(name: str, by_tenant: Mapping[str, int], tenants: TenantLabels) -> Metric:
    """A sum for each label; tenants with their own label also have zeros: graphs shall have no gaps."""
    totals = dict.fromkeys(sorted(tenants.own), 0)
    for tenant, count in by_tenant.items():
        label = tenants.of(tenant)
        totals[label] = totals.get(label, 0) + count
    family = gauge_family(name)
    for label, total in totals.items():
        family.add_metric((label,), total)
    return family


class TargetsCollector(Collector):
    """The targets and limits of each tenant that has a label of its own, and the loosest of the others."""

    def __init__(self, telemetry: Telemetry, tenants: TenantLabels) -> None:
        self._telemetry = telemetry
        self._tenants = tenants

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        known = self._telemetry.directory.tenants
        families = {name: gauge_family(name) for name in _OF_TENANT}
        own = self._tenants.own
        if rest := [tenant for name, tenant in known.items() if name not in own]:
            for name, value in _of_rest(rest).items():
                families[name].add_metric((REST,), value)
        for name in sorted(own & set(known)):
            for family, value in zip(families.values(), _of_tenant(known[name]), strict=True):
                family.add_metric((name,), value)
        yield from families.values()
        whole = gauge_family("pdmuxd_slo_e2e_seconds")
        for name in sorted(own & set(known)):
            if (e2e_s := known[name].slo.e2e_s) is not None:
                whole.add_metric((name,), e2e_s)
        yield whole


class PredictionCollector(Collector):
    """How far predictions are off, and what the contention guard holds."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        ratios = gauge_family("pdmuxd_prediction_ratio")
        samples = gauge_family("pdmuxd_prediction_samples")
        for drift in self._telemetry.drift.all(self._telemetry.clock()):
            of = (drift.work, str(drift.sms))
            ratios.add_metric((*of, "0.5"), drift.p50_ratio)
            ratios.add_metric((*of, "0.9"), drift.p90_ratio)
            samples.add_metric(of, drift.samples)
        yield from (ratios, samples)
        cells = [cell for _, cell in self._telemetry.guard.snapshot()]
        yield _one("pdmuxd_guard_cells", len(cells))
        yield _one("pdmuxd_guard_raised_cells", sum(cell.raised for cell in cells))
        yield _one("pdmuxd_guard_max_ratio", max((cell.ratio for cell in cells), default=1.0))


class AlarmCollector(Collector):
    """Alarms and the event stream. A burn alarm has a series per tenant only while it is raised."""

    def __init__(self, telemetry: Telemetry, tenants: TenantLabels) -> None:
        self._telemetry = telemetry
        self._tenants = tenants

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        yield self._active()
        raised = counter_family("pdmuxd_alarms_raised_total")
        for kind in get_args(AlarmKind):
            raised.add_metric((kind,), self._telemetry.alarms.raised_total[kind])
        yield raised
        yield from self._incidents()
        events = counter_family("pdmuxd_events_total")
        for type_ in get_args(EventType):
            events.add_metric((type_,), self._telemetry.published[type_])
        yield events
        yield _one("pdmuxd_event_clients", self._telemetry.events.clients)
        yield _one("pdmuxd_event_losses_total", self._telemetry.events.lost_events)
        yield _one("pdmuxd_history_write_failures_total", self._telemetry.recorder.failed_writes)
        yield _one("pdmuxd_history_lost_rows_total", self._telemetry.recorder.lost_rows)

    def _incidents(self) -> Iterator[Metric]:
        incidents = self._telemetry.incidents
        family = gauge_family("pdmuxd_incident")
        open_ = {(self._tenants.of(name) or REST, cause) for name, cause in incidents.causes().items()}
        for tenant, cause in sorted(open_):
            family.add_metric((tenant, cause), 1.0)
        yield family
        over = counter_family("pdmuxd_incidents_over_total")
        for cause in Cause:
            over.add_metric((cause,), incidents.over_total[cause])
        yield over

    def _active(self) -> Metric:
        family = gauge_family("pdmuxd_alarm")
        active = {
            (alarm.kind, "" if alarm.tenant is None else self._tenants.of(alarm.tenant) or REST)
            for alarm in self._telemetry.alarms.active()
        }
        for kind in get_args(AlarmKind):
            tenants = sorted(tenant for found, tenant in active if found == kind)
            for tenant in tenants or [""]:
                family.add_metric((kind, tenant), float((kind, tenant) in active))
        return family


def _one(name: str, value: float) -> Metric:
    family = counter_family(name) if DEFINITIONS[name].kind == "counter" else gauge_family(name)
    family.add_metric((), value)
    return family
