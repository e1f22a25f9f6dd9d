"""How what is known is told: from the values inside to the messages of the stream and the read routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from pdmuxd.controlplane.events.messages import (
    EngineEvent,
    EngineLoad,
    PartitionOut,
    RequestEvent,
    RequestViolation,
    SettingsEvent,
    StatsEvent,
    Targets,
    TbtTarget,
    TenantLoad,
    TenantsEvent,
    TimelinePoint,
    instant,
    ms,
)
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineState, EngineStatus
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S, HOUR_S, WINDOW_S, Attainment
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap, TbtCaps
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts
from pdmuxd.controlplane.tenants.records import TenantRecord

MAX_TENANTS = 100
"""In one event: it is sent every second to every client."""


def stats(
    load: EngineLoad,
    *,
    state: EngineState,
    everyone: Attainment,
    directory: DirectorySnapshot,
    in_flight: Mapping[str, int],
    waiting: OpenCounts,
    caps: TbtCaps,
    now_s: float,
) -> StatsEvent:
    """The event `stats`; `in_flight` counts requests by tenant, `waiting` is of all tenants together."""
    rates = everyone.rates(now_s)
    return StatsEvent(
        **{name: getattr(load, name) for name in type(load).model_fields},
        at=instant(now_s),
        state=state,
        in_flight=sum(in_flight.values()),
        window_ms=to_ms(WINDOW_S),
        requests_per_s=rates.requests_per_s,
        goodput_per_s=rates.goodput_per_s,
        ttft_ms=everyone.ttft(now_s),
        tbt_gap_ms=everyone.tbt_gaps(now_s),
        tbt_worst_ms=everyone.tbt_worst(now_s),
        strictest_tbt=strictest(directory, in_flight, caps),
        waiting_total=waiting.waiting,
        late_now=waiting.late,
        oldest_wait_ms=to_ms(round(waiting.oldest_wait_s, 3)),
    )


def strictest(directory: DirectorySnapshot, in_flight: Mapping[str, int], caps: TbtCaps) -> TbtTarget | None:
    """The strictest TBT target that is planned for: of the tenants with requests in flight, else of all."""
    enabled = [tenant for tenant in directory.tenants.values() if tenant.enabled]
    active = [tenant for tenant in directory.tenants.values() if in_flight.get(tenant.name)]
    # A tenant that is capped is planned for at another's target: it is that one's.
    planned = [
        (_planned_tbt_s(tenant, caps.get(tenant.name)), tenant.name in caps, tenant.name)
        for tenant in active or enabled
    ]
    tbt_s, _, name = min(planned, default=(0.0, False, ""))
    return TbtTarget(tenant=name, tbt_ms=to_ms(tbt_s)) if name else None


def _planned_tbt_s(tenant: TenantRecord, cap: TbtCap | None) -> float:
    return tenant.slo.tbt_s if cap is None else max(tenant.slo.tbt_s, cap.tbt_s)


def tenants(
    attainments: Mapping[str, Attainment],
    *,
    directory: DirectorySnapshot,
    in_flight: Mapping[str, int],
    waiting: Mapping[str, OpenCounts],
    caps: TbtCaps,
    now_s: float,
) -> TenantsEvent:
    """The event `tenants`: those with anything in flight or in the last hour; most late first, then busiest.

    `in_flight` and `waiting` count requests by tenant.
    """
    active = [
        (waiting.get(name, NOTHING_OPEN).late, in_flight.get(name, 0), attainment.last_s, name)
        for name, attainment in attainments.items()
        if in_flight.get(name) or name in waiting or now_s - attainment.last_s < HOUR_S
    ]
    busiest = [name for *_, name in sorted(active, reverse=True)[:MAX_TENANTS]]
    return TenantsEvent(
        at=instant(now_s),
        window_ms=to_ms(WINDOW_S),
        omitted=len(active) - len(busiest),
        tenants=tuple(
            tenant_load(
                directory.tenants[name],
                attainments[name],
                in_flight=in_flight.get(name, 0),
                waiting=waiting.get(name, NOTHING_OPEN),
                cap=caps.get(name),
                now_s=now_s,
            )
            for name in busiest
        ),
    )


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
    ttft_hour, tbt_hour = attainment.violations(now_s, HOUR_S, waiting)
    ttft, tbt = attainment.violations(now_s, FIVE_MINUTES_S, waiting)
    return TenantLoad(
        tenant=tenant.name,
        in_flight=in_flight,
        waiting=waiting.waiting,
        late_now=waiting.late,
        oldest_wait_ms=to_ms(round(waiting.oldest_wait_s, 3)),
        verdict=attainment.verdict(now_s, target_ratio, waiting),
        target_ratio=target_ratio,
        requests_per_s=rates.requests_per_s,
        goodput_per_s=rates.goodput_per_s,
        output_tokens_per_s=rates.output_tokens_per_s,
        refused_per_s=rates.refused_per_s,
        ttft_ms=attainment.ttft(now_s),
        tbt_gap_ms=attainment.tbt_gaps(now_s),
        tbt_worst_ms=attainment.tbt_worst(now_s),
        ttft_attainment_ratio=rounded(ttft_hour.attainment_ratio),
        tbt_attainment_ratio=rounded(tbt_hour.attainment_ratio),
        ttft_burn=rounded(ttft.burn(target_ratio)),
        tbt_burn=rounded(tbt.burn(target_ratio)),
        budget_left_ratio=attainment.budget_left_ratio(now_s, target_ratio, waiting),
        tbt_capped_since=None if cap is None else instant(cap.since_s),
        planned_tbt_ms=None if cap is None else to_ms(_planned_tbt_s(tenant, cap)),
    )


def rounded(value: float | None) -> float | None:
    """For people: six digits after the point."""
    return None if value is None else round(value, 6)


def engine(status: EngineStatus, now_s: float, *, reason: str | None) -> EngineEvent:
    """The event `engine`; `reason` goes before the last error that the status holds."""
    hello, heartbeat = status.hello, status.stats
    about = (
        {}
        if hello is None
        else {
            "kind": hello.engine,
            "engine_version": hello.engine_version,
            "model": hello.model,
            "device": hello.device,
            "total_sms": hello.total_sms,
            "partitions": tuple(PartitionOut(prefill_sms=p, decode_sms=d) for p, d in hello.partitions),
            "profile": hello.profile,
        }
    )
    return EngineEvent.model_validate(
        {
            "at": instant(now_s),
            "state": status.state,
            "reason": reason or (status.last_error if status.state in ("down", "starting") else None),
            "since": instant(status.since_s),
            "pid": status.pid,
            "restarts": status.restarts,
            "held": status.is_held,
            "wanted_version": status.wanted_version,
            "acked_version": status.acked_version,
            "policy": heartbeat.policy if heartbeat is not None else None,
            **about,
        }
    )


def wanted(before: DirectorySnapshot, now: DirectorySnapshot, now_s: float) -> SettingsEvent:
    """The event `settings`, of a version that the engine is to have."""
    changed = (tenant for name, tenant in now.tenants.items() if before.tenants.get(name) != tenant)
    return SettingsEvent(
        at=instant(now_s),
        kind="wanted",
        version=now.version,
        changed=tuple(_targets(tenant) for tenant in changed),
        removed=tuple(sorted(set(before.tenants) - set(now.tenants))),
    )


def in_force(version: int, now_s: float) -> SettingsEvent:
    """The event `settings`, of a version that the engine has confirmed."""
    return SettingsEvent(at=instant(now_s), kind="in_force", version=version)


def _targets(tenant: TenantRecord) -> Targets:
    return Targets(
        tenant=tenant.name,
        slo_version=tenant.slo_version,
        tbt_ms=to_ms(tenant.slo.tbt_s),
        ttft_fixed_ms=to_ms(tenant.slo.ttft_fixed_s),
        ttft_per_1k_new_tokens_ms=to_ms(tenant.slo.ttft_per_1k_new_tokens_s),
        attainment_ratio=tenant.slo.attainment_ratio,
        enabled=tenant.enabled,
    )


def request(lifecycle: RequestLifecycle) -> RequestEvent:
    """The event `request`; of one in flight, what is known so far."""
    record = lifecycle.record
    engine_side = (
        {}
        if record is None
        else {
            "outcome": record.outcome,
            "new_tokens": record.new_tokens,
            "reused_tokens": record.reused_tokens,
            "output_tokens": record.output_tokens,
            "queue_ms": ms(record.queue_s),
            "prefill_ms": ms(_prefill_s(lifecycle)),
            "ttft_ms": ms(record.ttft_s),
            "ttft_target_ms": to_ms(record.ttft_target_s),
            "tbt_target_ms": to_ms(record.tbt_target_s),
            "tbt_max_ms": ms(record.tbt_max_s),
            "tbt_p99_ms": ms(record.tbt_p99_s),
            "tbt_gaps": record.tbt_gaps,
            "tbt_gaps_met": record.tbt_gaps_met,
            "retractions": record.retractions,
            "slo_version": record.slo_version,
        }
    )
    delivered = lifecycle.delivered
    if delivered is not None:
        engine_side |= {
            "delivered_ttft_ms": ms(delivered.ttft_s),
            "delivered_tbt_max_ms": to_ms(delivered.gap_max_s),
            "delivered_tbt_gaps_missed": delivered.gaps_missed,
        }
    return RequestEvent.model_validate(
        {
            "request_id": lifecycle.request_id,
            "tenant": lifecycle.tenant,
            "state": "in_flight" if lifecycle.ended_s is None else "ended",
            "path": lifecycle.path,
            "status": lifecycle.status,
            "arrived_at": None if lifecycle.arrived_s is None else instant(lifecycle.arrived_s),
            "ended_at": None if lifecycle.ended_s is None else instant(lifecycle.ended_s),
            "missed": tuple(
                RequestViolation(
                    target=violation.target,
                    by_ms=to_ms(violation.by_s),
                    cause=violation.cause,
                    text=violation.text,
                    **({} if violation.split is None else asdict(violation.split)),
                )
                for violation in lifecycle.violations
            ),
            "timeline": _timeline(lifecycle),
            **engine_side,
        }
    )


def _prefill_s(lifecycle: RequestLifecycle) -> float | None:
    record = lifecycle.record
    if record is None or record.ttft_s is None or record.queue_s is None:
        return None
    return max(0.0, record.ttft_s - record.queue_s)


def _timeline(lifecycle: RequestLifecycle) -> tuple[TimelinePoint, ...]:
    """Milliseconds since the arrival."""
    record = lifecycle.record
    points: list[tuple[float | None, str]] = [(0.0, "arrived")]
    if record is not None:
        points += [(record.queue_s, "prefill_started"), (record.ttft_s, "first_token")]
    if lifecycle.ended_s is not None and lifecycle.arrived_s is not None:
        points.append((lifecycle.ended_s - lifecycle.arrived_s, "ended"))
    return tuple(TimelinePoint(at_ms=to_ms(at_s), what=what) for at_s, what in points if at_s is not None)
