"""Partition groups, the guard and the predictors' drift over REST, as the engine's decisions show them."""

from __future__ import annotations

from datetime import datetime
from statistics import median

from fastapi import APIRouter
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.drift import Work
from pdmuxd.controlplane.telemetry.partitions import GroupUse
from pdmuxd.controlplane.telemetry.telemetry import Telemetry


class UseOut(BaseModel):
    """How long something was used, since the engine started."""

    time_ms: float = Field(examples=[1200.0])
    time_ratio: float | None = Field(description="Of the engine's time; null before its first heartbeat.")


class WorkOut(UseOut):
    """The same, with what was done."""

    decisions: int
    prefill_tokens: int = Field(
        description="Layer-wise prefill counts by the share of layers; 0 if the model is unknown."
    )
    decode_tokens: int


class GroupOut(WorkOut):
    """One partition group."""

    partition_id: int
    prefill_sms: int
    decode_sms: int
    in_force: bool


class PartitionsOut(BaseModel):
    """Where the time went, since the engine started."""

    since: datetime | None = Field(description="When the engine in force began to be known.")
    switches: int = Field(examples=[33])
    groups: list[GroupOut]
    fused: WorkOut = Field(description="Steps of one batch with prompt tokens in it, on all SMs.")
    decode: WorkOut = Field(description="Steps of decode by itself in one batch, on all SMs.")
    idle: UseOut


class GuardCellOut(BaseModel):
    """One cell of the guard; the indexes are those of the grid."""

    decode_sms: int = Field(examples=[48])
    prefill_new: int = Field(description="0 below 2K tokens, then one more for each factor of four.")
    prefill_reused: int
    decode_bs: int = Field(description="The bit length of the batch size.")
    decode_reused: int
    ratio: float = Field(description="What decisions multiply the prediction by.", examples=[1.2])
    observed_max_ratio: float | None
    observed_p50_ratio: float | None
    samples: int
    raised: bool = Field(description="The last change was upwards.")
    changed_at: datetime


class GuardOut(BaseModel):
    """The cells that decisions have used since the engine started."""

    cells: list[GuardCellOut] = Field(description="At most 4,096.", examples=[[]])


class DriftPairOut(BaseModel):
    """Measured over predicted for one kind of work, over the last ten minutes."""

    work: Work = Field(examples=["decode"])
    sms: int
    samples: int
    p50_ratio: float
    p90_ratio: float
    error_p50_ratio: float
    error_p90_ratio: float


class DriftOut(BaseModel):
    """How far predictors are off."""

    pairs: list[DriftPairOut]
    alarm: bool = Field(examples=[False])


def partition_routes(telemetry: Telemetry) -> APIRouter:
    """`/partitions`, `/guard`, `/drift`."""
    router = admin_router(tags=["partitions"])

    @router.get("/partitions", responses=documented())
    def get_partitions() -> PartitionsOut:
        """Show how long each partition group was used, and for how many tokens."""
        return partitions_of(telemetry)

    @router.get("/guard", responses=documented())
    def get_guard() -> GuardOut:
        """Show the contention guard: per cell what decisions use, and the slowdowns that were observed."""
        return guard_of(telemetry)

    @router.get("/drift", responses=documented())
    def get_drift() -> DriftOut:
        """Show how far what is measured is from what was predicted."""
        return drift_of(telemetry)

    return router


def partitions_of(telemetry: Telemetry) -> PartitionsOut:
    """How long each partition group was used, and for how many tokens."""
    status = telemetry.status()
    uses, fused, decode = telemetry.partitions.snapshot()
    elapsed_s = status.stats.uptime_s if status.stats is not None else 0.0
    known = status.hello.partitions if status.hello is not None else ()
    # Splits that were put in force since the engine introduced itself come after those that it named.
    sizes = (*known, *sorted((pair for pair in uses if pair not in known), key=lambda pair: pair[1]))
    stats = status.stats
    groups = [
        GroupOut(
            **_work(uses.get((prefill_sms, decode_sms), GroupUse()), elapsed_s),
            partition_id=index,
            prefill_sms=prefill_sms,
            decode_sms=decode_sms,
            in_force=stats is not None and (stats.prefill_sms, stats.decode_sms) == (prefill_sms, decode_sms),
        )
        for index, (prefill_sms, decode_sms) in enumerate(sizes)
    ]
    busy_s = fused.time_s + decode.time_s + sum(use.time_s for use in uses.values())
    idle_s = max(0.0, elapsed_s - busy_s)
    return PartitionsOut(
        since=instant(telemetry.clock() - elapsed_s) if status.stats is not None else None,
        switches=status.stats.switches if status.stats is not None else 0,
        groups=groups,
        fused=WorkOut(**_work(fused, elapsed_s)),
        decode=WorkOut(**_work(decode, elapsed_s)),
        idle=UseOut(time_ms=to_ms(idle_s), time_ratio=_share(idle_s, elapsed_s)),
    )


def guard_of(telemetry: Telemetry) -> GuardOut:
    """The contention guard, cell by cell."""
    return GuardOut(
        cells=[
            GuardCellOut(
                decode_sms=cell[0],
                prefill_new=cell[1],
                prefill_reused=cell[2],
                decode_bs=cell[3],
                decode_reused=cell[4],
                ratio=view.ratio,
                observed_max_ratio=view.observed_max_ratio,
                observed_p50_ratio=median(tuple(view.observed)) if view.observed else None,
                samples=view.samples,
                raised=view.raised,
                changed_at=instant(view.changed_s),
            )
            for cell, view in sorted(telemetry.guard.snapshot(), key=lambda each: each[0])
        ]
    )


def drift_of(telemetry: Telemetry) -> DriftOut:
    """How far what is measured is from what was predicted."""
    drifts = telemetry.drift.all(telemetry.clock())
    pairs = [
        DriftPairOut(**{name: getattr(each, name) for name in DriftPairOut.model_fields}) for each in drifts
    ]
    return DriftOut(pairs=pairs, alarm=any(each.is_off for each in drifts))


def _work(use: GroupUse, elapsed_s: float) -> dict[str, float | int | None]:
    return {
        "time_ms": to_ms(use.time_s),
        "time_ratio": _share(use.time_s, elapsed_s),
        "decisions": use.decisions,
        "prefill_tokens": round(use.prefill_tokens),
        "decode_tokens": use.decode_tokens,
    }


def _share(part_s: float, elapsed_s: float) -> float | None:
    return round(min(1.0, part_s / elapsed_s), 6) if elapsed_s > 0 else None
