"""The events that tell again and again how things are: `stats` ten times a second, `tenants` each second.

Telling of a hundred tenants takes tens of milliseconds, so the tenants of one event are told in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest

from pdmuxd.controlplane.events.messages import (
    StatsEvent,
    TbtTarget,
    TenantLoad,
    TenantsEvent,
    instant,
)
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.attainment import (
    FIVE_MINUTES_S,
    HOUR_S,
    WINDOW_S,
    Attainment,
    budget_left,
    verdict_of,
)
from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.controlplane.telemetry.load import EngineCounters
from pdmuxd.controlplane.telemetry.serializers import rounded
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap, TbtCaps
from pdmuxd.controlplane.telemetry.tenant_states import TenantStates
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts, summed
from pdmuxd.controlplane.tenants.records import TenantRecord

MAX_TENANTS = 100
"""In one event: it is sent every second to every client."""
TOLD_AT_ONCE = 20
"""Tenants in one slice, which takes some 5 ms."""


class Frames:
    """Makes the events; asked in the event loop."""

    def __init__(
        self,
        tenants: Mapping[str, Attainment],
        everyone: Attainment,
        states: TenantStates,
        counters: EngineCounters,
        decisions: Decisions,
        in_flight: Callable[[], Mapping[str, int]],
    ) -> None:
        self._tenants = tenants
        self._everyone = everyone
        self._states = states
        self._counters = counters
        self._decisions = decisions
        self._in_flight = in_flight
        self._left: list[str] = []
        """Tenants of the event that is being made which are not told yet, the last first."""
        self._told: list[TenantLoad] = []
        self._omitted = 0
        self._summed: tuple[Mapping[str, OpenCounts], OpenCounts] = {}, NOTHING_OPEN
        """What was open, and all of it together: of several events it is the same."""

    def stats(
        self,
        status: EngineStatus,
        waiting: Mapping[str, OpenCounts],
        strictest: TbtTarget | None,
        now_s: float,
    ) -> StatsEvent:
        """The load and the latencies of this moment; `waiting` is what is open, by tenant."""
        load = self._counters.load(status, self._decisions.latest, now_s)
        everyone, rates = self._everyone, self._everyone.rates(now_s)
        if self._summed[0] is not waiting:
            self._summed = waiting, summed(waiting.values())
        opened = self._summed[1]
        return StatsEvent(
            **{name: getattr(load, name) for name in type(load).model_fields},
            at=instant(now_s),
            state=status.state,
            in_flight=sum(self._in_flight().values()),
            window_ms=to_ms(WINDOW_S),
            requests_per_s=rates.requests_per_s,
            goodput_per_s=rates.goodput_per_s,
            good_by_steps_per_s=rates.good_by_steps_per_s,
            good_forgiven_per_s=rates.good_forgiven_per_s,
            ttft_ms=everyone.ttft(now_s),
            tbt_gap_ms=everyone.tbt_gaps(now_s),
            tbt_worst_ms=everyone.tbt_worst(now_s),
            strictest_tbt=strictest,
            waiting_total=opened.waiting,
            late_now=opened.late,
            oldest_wait_ms=to_ms(round(opened.oldest_wait_s, 3)),
        )

    def begin_tenants(self, waiting: Mapping[str, OpenCounts]) -> None:
        """Begin an event `tenants`: those with anything in flight or in the last hour; most late first, then
        busiest."""
        in_flight, active = self._in_flight(), self._states.active()
        busy = [name for name in {*in_flight, *waiting} if name in self._tenants]
        chosen = nlargest(
            MAX_TENANTS,
            busy,
            key=lambda name: (
                waiting.get(name, NOTHING_OPEN).late,
                in_flight.get(name, 0),
                self._tenants[name].last_s,
                name,
            ),
        )
        known = set(chosen)
        for name in self._states.latest():
            if len(chosen) >= MAX_TENANTS:
                break
            if name not in known and name in self._tenants:
                chosen.append(name)
        self._omitted = len(active) + sum(name not in active for name in busy) - len(chosen)
        self._left, self._told = chosen[::-1], []

    @property
    def is_making_tenants(self) -> bool:
        """Whether an event `tenants` has begun and is not done."""
        return bool(self._left)

    def tell_tenants(
        self,
        directory: DirectorySnapshot,
        waiting: Mapping[str, OpenCounts],
        caps: TbtCaps,
        now_s: float,
        *,
        at_once: int = MAX_TENANTS,
    ) -> Iterator[None]:
        """Tell of the next tenants, of one with each step."""
        in_flight = self._in_flight()
        for _ in range(min(at_once, len(self._left))):
            yield
            name = self._left.pop()
            tenant, attainment = directory.tenants.get(name), self._tenants.get(name)
            if tenant is not None and attainment is not None:
                load = tenant_load(
                    tenant,
                    attainment,
                    in_flight=in_flight.get(name, 0),
                    waiting=waiting.get(name, NOTHING_OPEN),
                    cap=caps.get(name),
                    now_s=now_s,
                )
                self._told.append(load)

    def tenants(self, now_s: float) -> TenantsEvent:
        """The event, of the tenants that were told of."""
        incidents, omitted = self._states.incidents.told(now_s)
        return TenantsEvent(
            at=instant(now_s),
            window_ms=to_ms(WINDOW_S),
            omitted=self._omitted,
            tenants=tuple(self._told),
            incidents=incidents,
            incidents_omitted=omitted,
        )


class StrictestTarget:
    """The strictest TBT target that is planned for: of the tenants with requests in flight, else of all.

    That of all is kept until the tenants, or the caps, are others.
    """

    def __init__(self) -> None:
        self._of_all: tuple[DirectorySnapshot, TbtCaps, TbtTarget | None] | None = None

    def __call__(
        self, directory: DirectorySnapshot, in_flight: Mapping[str, int], caps: TbtCaps
    ) -> TbtTarget | None:
        """The target, with its tenant; None without tenants."""
        tenants = directory.tenants
        if active := [tenants[name] for name, count in in_flight.items() if count and name in tenants]:
            return _strictest(active, caps)
        kept = self._of_all
        if kept is None or kept[0] is not directory or kept[1] != caps:
            enabled = [tenant for tenant in tenants.values() if tenant.enabled]
            kept = self._of_all = (directory, dict(caps), _strictest(enabled, caps))
        return kept[2]


def _strictest(tenants: list[TenantRecord], caps: TbtCaps) -> TbtTarget | None:
    if not caps:
        first = min(tenants, key=lambda tenant: (tenant.slo.tbt_s, tenant.name), default=None)
        return None if first is None else TbtTarget(tenant=first.name, tbt_ms=to_ms(first.slo.tbt_s))
    # A tenant that is capped is planned for at another's target: it is that one's.
    planned = (
        (_planned_tbt_s(tenant, caps.get(tenant.name)), tenant.name in caps, tenant.name)
        for tenant in tenants
    )
    tbt_s, _, name = min(planned, default=(0.0, False, ""))
    return TbtTarget(tenant=name, tbt_ms=to_ms(tbt_s)) if name else None


def _planned_tbt_s(tenant: TenantRecord, cap: TbtCap | None) -> float:
    return tenant.slo.tbt_s if cap is None else max(tenant.slo.tbt_s, cap.tbt_s)


def tenant_load(
    tenant: TenantRecord,
    attainment: Attainment,
    *,
    in_flight: int,
    waiting: OpenCounts,
    cap: TbtCap | None,
    now_s: float,
) -> TenantLoad:
    """How one tenant is doing; `in_flight` and `waiting` are its own."""
    target_ratio = tenant.slo.attainment_ratio
    rates = attainment.rates(now_s)
    hour = attainment.violations(now_s, HOUR_S, waiting)
    lately = attainment.violations(now_s, FIVE_MINUTES_S, waiting)
    return TenantLoad(
        tenant=tenant.name,
        in_flight=in_flight,
        waiting=waiting.waiting,
        late_now=waiting.late,
        oldest_wait_ms=to_ms(round(waiting.oldest_wait_s, 3)),
        verdict=verdict_of(lately, target_ratio),
        target_ratio=target_ratio,
        requests_per_s=rates.requests_per_s,
        goodput_per_s=rates.goodput_per_s,
        good_by_steps_per_s=rates.good_by_steps_per_s,
        good_forgiven_per_s=rates.good_forgiven_per_s,
        output_tokens_per_s=rates.output_tokens_per_s,
        refused_per_s=rates.refused_per_s,
        ttft_ms=attainment.ttft(now_s),
        tbt_gap_ms=attainment.tbt_gaps(now_s),
        tbt_worst_ms=attainment.tbt_worst(now_s),
        ttft_attainment_ratio=rounded(hour.ttft.attainment_ratio),
        tbt_attainment_ratio=rounded(hour.tbt.attainment_ratio),
        availability_ratio=rounded(hour.availability.attainment_ratio),
        e2e_attainment_ratio=rounded(hour.e2e.attainment_ratio),
        ttft_burn=rounded(lately.ttft.burn(target_ratio)),
        tbt_burn=rounded(lately.tbt.burn(target_ratio)),
        availability_burn=rounded(lately.availability.burn(target_ratio)),
        e2e_burn=rounded(lately.e2e.burn(target_ratio)),
        asked=lately.availability.judged,
        unserved=lately.availability.missed,
        limited=lately.availability.limited,
        budget_left_ratio=budget_left(hour, target_ratio),
        tbt_capped_since=None if cap is None else instant(cap.since_s),
        planned_tbt_ms=None if cap is None else to_ms(_planned_tbt_s(tenant, cap)),
    )
