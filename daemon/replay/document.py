"""The JSON result: a stable, documented schema (docs/result-json.md) of everything that the table shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from pdmuxd.daemon.replay.metrics import Metrics
from pdmuxd.daemon.replay.run import PolicyReplay, ReplayPlan
from pdmuxd.daemon.replay.shape import Shaping
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import Profile

SCHEMA = "pdmuxd.replay/1"
"""Keys are only ever added under one number; a changed meaning is a new number."""


class TraceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The trace and what was done to it. Times are before rate scaling where they come from the options."""

    file: str
    format: str
    requests: int
    input_tokens: int
    output_tokens: int
    """Asked for."""
    arrival_span_s: float
    rate_requests_per_s: float
    """Mean over the arrival span; 0 if all arrive at once."""
    tenants: int
    block_tokens: int
    tick_s: float
    rate_scale: float
    sorted: bool
    from_s: float
    to_s: float | None
    limit: int | None
    dropped_too_long: int
    clipped: int
    seed: int


class ProfileDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The emulated model and device."""

    name: str
    provenance: str
    model: str
    max_context_tokens: int
    device: str
    total_sms: int
    kv_capacity_tokens: int
    noise: DeviceNoise
    """How the device differed from the profile."""


class SloDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The targets, the same for every tenant of the trace."""

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float
    attainment_ratio: float
    e2e_ms: float | None = None


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's numbers."""

    policy: str
    wall_s: float
    metrics: Metrics


class ReplayDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result. Infinite times are null: the token never came."""

    schema: str
    pdmuxd_version: str
    created_at: str
    """ISO 8601, UTC."""
    command: str
    """Makes this result again."""
    percentile_method: str
    trace: TraceDocument
    profile: ProfileDocument
    slo: SloDocument
    policies: tuple[PolicyDocument, ...]


def build_document(
    plan: ReplayPlan,
    shaping: Shaping,
    replays: Sequence[PolicyReplay],
    *,
    command: str,
    version: str,
    created_at: datetime,
) -> ReplayDocument:
    """Put configuration and results together; `created_at` is aware."""
    slo = plan.slo
    return ReplayDocument(
        schema=SCHEMA,
        pdmuxd_version=version,
        created_at=created_at.isoformat(timespec="seconds"),
        command=command,
        percentile_method="nearest_rank",
        trace=_trace(plan, shaping),
        profile=profile_document(plan.profile),
        slo=SloDocument(
            ttft_fixed_ms=slo.ttft_fixed_s * 1000.0,
            ttft_per_1k_new_tokens_ms=slo.ttft_per_1k_new_tokens_s * 1000.0,
            tbt_ms=slo.tbt_s * 1000.0,
            attainment_ratio=slo.attainment_ratio,
            e2e_ms=None if slo.e2e_s is None else slo.e2e_s * 1000.0,
        ),
        policies=tuple(
            PolicyDocument(policy=replay.policy, wall_s=replay.wall_s, metrics=replay.metrics)
            for replay in replays
        ),
    )


def _trace(plan: ReplayPlan, shaping: Shaping) -> TraceDocument:
    trace = plan.trace
    requests = trace.requests
    return TraceDocument(
        file=str(trace.path),
        format=trace.format,
        requests=len(requests),
        input_tokens=sum(request.input_tokens for request in requests),
        output_tokens=sum(request.output_tokens for request in requests),
        arrival_span_s=trace.span_s,
        rate_requests_per_s=len(requests) / trace.span_s if trace.span_s > 0 else 0.0,
        tenants=len({request.tenant for request in requests}),
        block_tokens=trace.block_tokens,
        tick_s=trace.tick_s,
        rate_scale=trace.rate_scale,
        sorted=shaping.sort,
        from_s=shaping.from_s,
        to_s=shaping.to_s,
        limit=shaping.limit,
        dropped_too_long=trace.dropped_too_long,
        clipped=trace.clipped,
        seed=shaping.seed,
    )


def profile_document(profile: Profile) -> ProfileDocument:
    """What a reader must know of a profile."""
    return ProfileDocument(
        name=profile.name,
        provenance=profile.provenance,
        model=profile.model.name,
        max_context_tokens=profile.model.max_context_tokens,
        device=profile.device.name,
        total_sms=profile.device.total_sms,
        kv_capacity_tokens=profile.kv_capacity_tokens,
        noise=profile.noise,
    )
