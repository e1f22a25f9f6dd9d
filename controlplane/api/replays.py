"""Replays of recent traffic over REST: begin, follow, cancel, and both outcomes side by side."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Self

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.policy import SplitIn
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.slos import SLO_EXAMPLE, SloIn
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.scheduling import MOST_SPLITS, SPEC_MAX, Scheduling, check_scheduling
from pdmuxd.controlplane.node.traffic_replays import (
    MOST_VARIANTS,
    Job,
    JobState,
    Outcome,
    ReplayJobs,
    TenantOutcome,
    WantedSharing,
    WantedVariant,
)
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.tenants.tenant_fields import ALLOWED, NAME_ALLOWED, WEIGHT_RANGE, in_words
from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.core.slo import LateAction, PriorityClass

_SCALE = (0.05, 20.0)
_MINUTES = (0.1, 1440.0)
_LABEL_MAX = 60
_MOST_TENANTS = 1000
JobId = Annotated[str, PathParameter(max_length=40)]


class SharingIn(Body):
    """How a tenant takes part in what all share; what is left out is as it is in force."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"priority_class": "batch", "weight": 2}]})
    allowed: ClassVar[Mapping[str, str]] = ALLOWED

    priority_class: PriorityClass | None = None
    weight: float | None = Field(
        None, strict=True, ge=WEIGHT_RANGE[0], le=WEIGHT_RANGE[1], allow_inf_nan=False
    )
    late_action: LateAction | None = None

    def to_wanted(self) -> WantedSharing:
        return WantedSharing(
            priority_class=self.priority_class, weight=self.weight, late_action=self.late_action
        )


class VariantIn(Body):
    """One way to serve the traffic; what is left out is as it is in force."""

    allowed: ClassVar[Mapping[str, str]] = {
        "label": f"1 to {_LABEL_MAX} characters",
        "policy": f"null, or a policy's specification of at most {SPEC_MAX} characters",
        "partitions": f"null, or 1 to {MOST_SPLITS} splits",
        "targets": f"targets by tenant, at most {_MOST_TENANTS}",
        "rate_scale": in_words(_SCALE),
        "tenant_scale": f"0 to {_SCALE[1]:g} by tenant, at most {_MOST_TENANTS}",
        "sharing": f"priority_class, weight and late_action by tenant, at most {_MOST_TENANTS}",
    }

    label: str | None = Field(None, strict=True, min_length=1, max_length=_LABEL_MAX, examples=["stricter"])
    policy: str | None = Field(None, strict=True, min_length=1, max_length=SPEC_MAX)
    partitions: list[SplitIn] | None = Field(None, min_length=1, max_length=MOST_SPLITS)
    targets: dict[str, SloIn] = Field(default_factory=dict, max_length=_MOST_TENANTS)
    rate_scale: float = Field(1.0, strict=True, ge=_SCALE[0], le=_SCALE[1], allow_inf_nan=False)
    tenant_scale: dict[str, Annotated[float, Field(strict=True, ge=0, le=_SCALE[1], allow_inf_nan=False)]] = (
        Field(default_factory=dict, max_length=_MOST_TENANTS)
    )
    sharing: dict[str, SharingIn] = Field(default_factory=dict, max_length=_MOST_TENANTS)

    def to_wanted(self, number: int, predictors: Predictors) -> WantedVariant:
        """Convert. Raises: InvalidValueError for what the device cannot do."""
        predicting = predictors()
        pairs = self.partitions
        scheduling = check_scheduling(
            Scheduling(
                policy=self.policy,
                partitions=None
                if pairs is None
                else tuple((one.prefill_sms, one.decode_sms) for one in pairs),
            ),
            None if predicting is None else predicting.context,
        )
        return WantedVariant(
            label=self.label or f"variant {number}",
            policy=scheduling.policy,
            partitions=scheduling.partitions,
            targets={name: slo.to_core() for name, slo in self.targets.items()},
            rate_scale=self.rate_scale,
            tenant_scale=self.tenant_scale,
            sharing={name: one.to_wanted() for name, one in self.sharing.items()},
        )


class ReplayIn(Body):
    """Which traffic, and how to serve it beside what is in force."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "minutes": 10,
                    "variants": [
                        {"label": "stricter", "targets": {"chat": SLO_EXAMPLE}},
                        {"label": "muxwise, twice the load", "policy": "muxwise", "rate_scale": 2},
                    ],
                }
            ]
        }
    )
    allowed: ClassVar[Mapping[str, str]] = {
        "minutes": in_words(_MINUTES),
        "variants": f"1 to {MOST_VARIANTS} variants",
    }

    minutes: float = Field(
        10.0, strict=True, ge=_MINUTES[0], le=_MINUTES[1], allow_inf_nan=False, description="Until now."
    )
    variants: list[VariantIn] = Field(min_length=1, max_length=MOST_VARIANTS)


class TenantOutcomeOut(BaseModel):
    """What one tenant's requests got; null where there was nothing to judge, or it never came."""

    tenant: str = Field(examples=["chat"])
    requests: int
    finished: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    ttft_attainment_ratio: float | None
    tbt_p99_ms: float | None = Field(description="The 99th percentile of the requests' p99 gaps.")
    tbt_attainment_ratio: float | None
    promised_ratio: float
    kept: bool = Field(description="Both attainments reach what is promised.")
    needed_ttft_fixed_ms: float | None = Field(
        description="The ttft_fixed_ms that the promised share of its requests met."
    )

    @classmethod
    def of(cls, found: TenantOutcome) -> Self:
        return cls(
            tenant=found.tenant,
            requests=found.requests,
            finished=found.finished,
            ttft_p50_ms=_ms(found.ttft_p50_s),
            ttft_p99_ms=_ms(found.ttft_p99_s),
            ttft_attainment_ratio=found.ttft_attainment_ratio,
            tbt_p99_ms=_ms(found.tbt_p99_s),
            tbt_attainment_ratio=found.tbt_attainment_ratio,
            promised_ratio=found.promised_ratio,
            kept=found.kept,
            needed_ttft_fixed_ms=_ms(found.needed_ttft_fixed_s),
        )


class OutcomeOut(BaseModel):
    """What one variant came to."""

    label: str = Field(examples=["in force"])
    policy: str
    requests: int
    finished: int
    span_ms: float
    goodput_per_s: float = Field(description="Requests with TTFT and the p99 of their gaps in time.")
    prefill_sm_ratio: float
    decode_sm_ratio: float
    tenants: list[TenantOutcomeOut]

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        return cls(
            label=outcome.label,
            policy=outcome.policy,
            requests=outcome.requests,
            finished=outcome.finished,
            span_ms=to_ms(outcome.span_s),
            goodput_per_s=outcome.goodput_per_s,
            prefill_sm_ratio=outcome.prefill_sm_ratio,
            decode_sm_ratio=outcome.decode_sm_ratio,
            tenants=[TenantOutcomeOut.of(one) for one in outcome.tenants],
        )


class ReplayOut(BaseModel):
    """One replay; its outcomes are there when it is `done`."""

    id: str = Field(examples=["0c8b6f5d2a11"])
    state: JobState
    created_at: datetime
    requests: int = Field(description="Captured requests that are replayed in each variant.")
    progress_ratio: float
    reason: str | None = Field(description="Why it failed.")
    outcomes: list[OutcomeOut] = Field(description="First what is in force, then the variants, in order.")

    @classmethod
    def of(cls, job: Job) -> Self:
        return cls(
            id=job.job_id,
            state=job.state,
            created_at=datetime.fromtimestamp(job.created_s, UTC),
            requests=job.requests,
            progress_ratio=round(min(1.0, job.done / job.total), 4) if job.total else 0.0,
            reason=job.reason,
            outcomes=[OutcomeOut.of(one) for one in job.outcomes],
        )


def replay_routes(replays: ReplayJobs, predictors: Predictors) -> APIRouter:
    """The routes under `/what-if/replays`."""
    router = admin_router(prefix="/what-if/replays", tags=["what-if"])

    # Asynchronous: the jobs belong to the event loop.
    @router.post("", status_code=202, responses=documented(409))
    async def begin_replay(body: ReplayIn) -> ReplayOut:
        """Replay recent traffic on the emulator, as is in force and with other settings. Applies nothing."""
        return await begin(body, replays, predictors)

    @router.get("", responses=documented())
    async def list_replays() -> list[ReplayOut]:
        """List the latest 20, newest first."""
        return [ReplayOut.of(job) for job in replays.latest()]

    @router.get("/{job_id}", responses=documented(404))
    async def get_replay(job_id: JobId) -> ReplayOut:
        """Show how far a replay is, and its outcomes side by side."""
        return ReplayOut.of(replays.get(job_id))

    @router.delete("/{job_id}", responses=documented(404))
    async def cancel_replay(job_id: JobId) -> ReplayOut:
        """End a replay that has not ended."""
        return ReplayOut.of(replays.cancel(job_id))

    return router


async def begin(body: ReplayIn, replays: ReplayJobs, predictors: Predictors) -> ReplayOut:
    """Begin a replay. Raises: InvalidValueError, EngineError, ConflictError."""
    for variant in body.variants:
        _check_names(variant)
    wanted = tuple(one.to_wanted(number, predictors) for number, one in enumerate(body.variants, 1))
    return ReplayOut.of(await replays.begin(wanted, minutes=body.minutes))


def _check_names(variant: VariantIn) -> None:
    for field in ("targets", "tenant_scale", "sharing"):
        for name in getattr(variant, field):
            if not 0 < len(name) <= 63:
                raise InvalidValueError(
                    field, f"{field} names a tenant {name[:80]!r}; allowed are {NAME_ALLOWED}"
                )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else to_ms(seconds)
