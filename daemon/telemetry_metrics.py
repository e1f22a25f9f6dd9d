"""Alarms and the event stream, as Prometheus sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdmuxd.controlplane.events.messages import AlarmKind, EventType
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN


class TelemetryCollector(Collector):
    """Read at each scrape. A burn alarm has a series per tenant only while it is raised."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield self._active()
        yield from self._waiting()
        raised = CounterMetricFamily("pdmuxd_alarms_raised", "Alarms raised.", labels=("kind",))
        for kind in get_args(AlarmKind):
            raised.add_metric((kind,), self._telemetry.alarms.raised_total[kind])
        yield raised
        events = CounterMetricFamily("pdmuxd_events", "Events published.", labels=("type",))
        for type_ in get_args(EventType):
            events.add_metric((type_,), self._telemetry.published[type_])
        yield events
        buffer = self._telemetry.events
        yield GaugeMetricFamily(
            "pdmuxd_event_clients", "Clients that follow the events.", value=buffer.clients
        )
        yield CounterMetricFamily(
            "pdmuxd_event_losses",
            "Events that a client did not get, and was told so; counted for each client.",
            value=buffer.lost_events,
        )

    def _waiting(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "pdmuxd_requests_waiting", "Requests without a first token.", labels=("tenant",)
        )
        late = GaugeMetricFamily(
            "pdmuxd_requests_late", "Waiting requests past their TTFT target.", labels=("tenant",)
        )
        oldest = GaugeMetricFamily(
            "pdmuxd_oldest_wait_seconds", "Of the request that waits longest.", labels=("tenant",)
        )
        found = self._telemetry.open_counts(self._telemetry.clock())
        # A tenant that was seen has its series whether anything waits or not: an alert needs the zero.
        for tenant in sorted({*tuple(self._telemetry.tenants), *found}):
            counts = found.get(tenant, NOTHING_OPEN)
            waiting.add_metric((tenant,), counts.waiting)
            late.add_metric((tenant,), counts.late)
            oldest.add_metric((tenant,), counts.oldest_wait_s)
        yield from (waiting, late, oldest)

    def _active(self) -> Metric:
        family = GaugeMetricFamily("pdmuxd_alarm", "1 while the alarm is raised.", labels=("kind", "tenant"))
        active = {(alarm.kind, alarm.tenant or "") for alarm in self._telemetry.alarms.active()}
        for kind in get_args(AlarmKind):
            tenants = sorted(tenant for found, tenant in active if found == kind)
            for tenant in tenants or [""]:
                family.add_metric((kind, tenant), float((kind, tenant) in active))
        return family
