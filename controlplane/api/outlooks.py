"""What new targets would give, as it is told over REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, Field

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.outlook.assumed_load import Assumed, Source
from pdmuxd.controlplane.outlook.obstacles import Obstacle
from pdmuxd.controlplane.outlook.queue_forecast import TenantForecast
from pdmuxd.controlplane.outlook.slo_preview import (
    Expected,
    Preview,
    SplitOutlook,
    TenantOutlook,
    Verdict,
)
from pdmuxd.controlplane.telemetry.forecast_record import Band
from pdmuxd.controlplane.telemetry.recent import WINDOW_S


class LoadOut(BaseModel):
    """The load that a split is chosen for."""

    decode_bs: int = Field(examples=[16])
    decode_context_tokens: int
    prefill_new_tokens: int
    prefill_reused_tokens: int
    source: Source = Field(
        serialization_alias="from", description="`default`: nothing has run, a lone request is assumed."
    )

    @classmethod
    def of(cls, load: Assumed) -> Self:
        return cls(**{name: getattr(load, name) for name in cls.model_fields})


class LoadOutlookOut(BaseModel):
    """What the policy in force would do at one load, under the tenant's TBT target."""

    load: LoadOut
    tbt_ms: float
    text: str = Field(examples=["36 SMs decode and 96 prefill: worst case 24.1 ms of 30 ms"])
    prefill_tokens_per_s: float | None
    meets: bool

    @classmethod
    def of(cls, split: SplitOutlook) -> Self:
        return cls(
            load=LoadOut.of(split.load),
            tbt_ms=to_ms(split.tbt_s),
            text=split.text,
            prefill_tokens_per_s=split.prefill_tokens_per_s,
            meets=split.meets,
        )


class BindingOut(BaseModel):
    """A tenant whose TBT target was the strictest of those that decoded."""

    tenant: str = Field(examples=["chat"])
    time_ratio: float = Field(description="The share of the last minutes' decoding in which it was.")


class UnderTargetsOut(BaseModel):
    """What holds at the load of the last minutes, under one set of targets."""

    loads: list[LoadOutlookOut] = Field(description="The usual load (p50), and a busy one (p90) if known.")
    binding: list[BindingOut] = Field(description="The ten that bind longest.")
    prefill_busy_ratio: float | None = Field(
        examples=[0.41], description="Of the time; near 1, prompts wait for each other."
    )


class TenantFiguresOut(BaseModel):
    """What a tenant's requests of the last minutes get; null where there was nothing to judge."""

    ttft_p50_ms: float | None = Field(examples=[143.0])
    ttft_p99_ms: float | None
    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None = Field(
        description="At worst: each gap beside a prefill counts as the policy's bound on it."
    )

    @classmethod
    def of(cls, found: TenantForecast | None) -> Self | None:
        if found is None:
            return None
        return cls(
            ttft_p50_ms=_ms(found.ttft_p50_s),
            ttft_p99_ms=_ms(found.ttft_p99_s),
            ttft_attainment_ratio=_ratio(found.ttft_attainment_ratio),
            tbt_attainment_ratio=_ratio(found.tbt_attainment_ratio),
        )


class OutlookMeasuredOut(BaseModel):
    """What it really got, to judge the prediction by."""

    ttft_attainment_ratio: float | None = Field(examples=[0.998])
    tbt_attainment_ratio: float | None


class BandOut(BaseModel):
    """Where a share is likely to lie: by past forecasts' errors, and by how few requests there are."""

    low_ratio: float = Field(examples=[0.962], description="Measured below this once in twenty times.")
    high_ratio: float = Field(description="Measured above this once in twenty times.")

    @classmethod
    def of(cls, band: Band | None) -> Self | None:
        return None if band is None else cls(low_ratio=round(band.low, 6), high_ratio=round(band.high, 6))


class TenantOutlookOut(BaseModel):
    """One tenant: measured, and predicted under the targets that hold and under the new ones."""

    tenant: str = Field(examples=["chat"])
    requests: int = Field(description="Of the last minutes.")
    attainment_ratio: float = Field(description="What it is promised.")
    measured: OutlookMeasuredOut | None = Field(description="Over five minutes, as `/attainment` tells it.")
    before: TenantFiguresOut | None
    after: TenantFiguresOut | None
    kept: bool | None = Field(description="Whether it is predicted to get that; null without traffic.")
    expected: Expected | None = Field(
        description="`kept` or `missed` if the whole band says so, else `at_risk`; null without traffic."
    )
    ttft_band: BandOut | None = Field(description="Where TTFT's share is likely to be measured then.")
    tbt_band: BandOut | None = Field(description="The same of TBT.")
    ttft_delivery_ms: float = Field(
        description="What delivery adds to first tokens, for the share that is promised; it is in `after`."
    )
    gap_delivery_ms: float = Field(description="The same of gaps between tokens.")
    e2e_attainment_ratio: float | None = Field(
        description="Of whole answers, under the new targets, by the last minutes' requests."
    )

    @classmethod
    def of(cls, tenant: TenantOutlook) -> Self:
        measured = tenant.measured
        return cls(
            tenant=tenant.tenant,
            requests=tenant.after.requests if tenant.after is not None else 0,
            attainment_ratio=tenant.slo.attainment_ratio,
            measured=None
            if measured is None
            else OutlookMeasuredOut(
                ttft_attainment_ratio=_ratio(measured.ttft_attainment_ratio),
                tbt_attainment_ratio=_ratio(measured.tbt_attainment_ratio),
            ),
            before=TenantFiguresOut.of(tenant.before),
            after=TenantFiguresOut.of(tenant.after),
            kept=tenant.is_kept,
            expected=tenant.expected,
            ttft_band=BandOut.of(tenant.ttft_band),
            tbt_band=BandOut.of(tenant.tbt_band),
            ttft_delivery_ms=to_ms(round(tenant.ttft_delivery_s, 5)),
            gap_delivery_ms=to_ms(round(tenant.gap_delivery_s, 5)),
            e2e_attainment_ratio=_ratio(tenant.e2e_attainment_ratio),
        )


class ObstacleOut(BaseModel):
    """A target that is infeasible."""

    field: str = Field(examples=["tbt_ms"])
    text: str
    lowest_feasible_ms: float | None

    @classmethod
    def of(cls, obstacle: Obstacle) -> Self:
        return cls(field=obstacle.field, text=obstacle.text, lowest_feasible_ms=_ms(obstacle.lowest_s))


class OutlookOut(BaseModel):
    """What new targets would give at the load of the last minutes."""

    verdict: Verdict = Field(
        description="`infeasible` is refused unless forced. `at_risk`: this tenant's promise, or another's "
        "that is kept now, is predicted to be broken, or its band reaches below it. `unknown`: no engine can "
        "be asked."
    )
    text: str = Field(examples=["chat is predicted to keep its targets: TTFT 99.8%, TBT 100.0% in time"])
    window_ms: float
    requests: int = Field(description="Of the last minutes, that the prediction is made of.")
    checked: int = Field(
        description="Shares of past forecasts that were compared with what was measured, for the bands."
    )
    policy: str | None = Field(description="In force; the one that was asked.", examples=["auto"])
    predictors: str | None
    before: UnderTargetsOut
    after: UnderTargetsOut
    lowest_feasible_tbt_ms: float | None = Field(description="At the usual load.")
    obstacles: list[ObstacleOut]
    tenants: list[TenantOutlookOut] = Field(description="This tenant, then the others that sent something.")

    @classmethod
    def of(cls, preview: Preview) -> Self:
        return cls(
            verdict=preview.verdict,
            text=preview.text,
            window_ms=to_ms(WINDOW_S),
            requests=preview.requests,
            checked=preview.checked,
            policy=preview.policy,
            predictors=preview.predictors,
            before=_under(preview.before, preview.binding_before, preview.prefill_busy_before),
            after=_under(preview.after, preview.binding_after, preview.prefill_busy_after),
            lowest_feasible_tbt_ms=_ms(preview.lowest_tbt_s),
            obstacles=[ObstacleOut.of(one) for one in preview.obstacles],
            tenants=[TenantOutlookOut.of(one) for one in preview.tenants],
        )


def _under(
    loads: tuple[SplitOutlook, ...], binding: Mapping[str, float] | None, busy_ratio: float | None
) -> UnderTargetsOut:
    shares = list((binding or {}).items())[:10]
    return UnderTargetsOut(
        loads=[LoadOutlookOut.of(one) for one in loads],
        binding=[BindingOut(tenant=name, time_ratio=round(share, 4)) for name, share in shares],
        prefill_busy_ratio=_ratio(busy_ratio),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else to_ms(seconds)


def _ratio(share: float | None) -> float | None:
    return None if share is None else round(share, 6)
