"""How what is known is told: from the values inside to the messages of the stream and the read routes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from pdmuxd.controlplane.events.messages import (
    EngineEvent,
    PartitionOut,
    RequestEvent,
    RequestViolation,
    SettingsEvent,
    Targets,
    TimelinePoint,
    instant,
    ms,
)
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.tenants.records import TenantRecord


def rounded(value: float | None) -> float | None:
    """Round for people: six digits after the point."""
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


def wanted(
    changed: Iterable[TenantRecord], removed: Iterable[str], version: int, now_s: float
) -> SettingsEvent:
    """The event `settings`, of a version that the engine is to have."""
    return SettingsEvent(
        at=instant(now_s),
        kind="wanted",
        version=version,
        changed=tuple(_targets(tenant) for tenant in changed),
        removed=tuple(sorted(removed)),
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
        e2e_ms=ms(tenant.slo.e2e_s),
        enabled=tenant.enabled,
    )


def request(lifecycle: RequestLifecycle) -> RequestEvent:
    """The event `request`; of one in flight, what is known so far."""
    record, outcome = lifecycle.record, lifecycle.outcome
    engine_side = (
        {}
        if record is None
        else {
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
            "e2e_ms": ms(record.e2e_s),
            "e2e_target_ms": ms(record.e2e_target_s),
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
            "delivered_e2e_ms": ms(delivered.e2e_s),
        }
    return RequestEvent.model_validate(
        {
            "request_id": lifecycle.request_id,
            "tenant": lifecycle.tenant,
            "state": "in_flight" if lifecycle.ended_s is None else "ended",
            "path": lifecycle.path,
            "status": lifecycle.status,
            "outcome": None if outcome is None or lifecycle.ended_s is None else outcome.value,
            "error": lifecycle.error or None,
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
