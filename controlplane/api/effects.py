"""What the latest changes did, over REST."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.long_lists import long_list
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.effects import (
    KEPT,
    LEAST_S,
    MOST_S,
    Effect,
    Replay,
    State,
)
from pdmuxd.controlplane.telemetry.serializers import rounded
from pdmuxd.controlplane.telemetry.standings import Measured, SmUse, Standing
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import NotFoundError


class SmUseOut(BaseModel):
    """Use of the SMs; null where there was nothing to average."""

    split_ratio: float | None = Field(examples=[0.62], description="Of the time of steps, in splits.")
    fused_ratio: float | None = Field(examples=[0.2], description="The same in fused steps.")
    prefill_sms: float | None = Field(examples=[84.2], description="Mean over the time in splits.")
    decode_sms: float | None = Field(examples=[47.8])
    prefill_busy_ratio: float | None = Field(examples=[0.55], description="Of all SM time.")
    decode_busy_ratio: float | None = Field(examples=[0.3])


class StandingOut(BaseModel):
    """How one tenant's targets were met, as clients saw it where the gateway could."""

    tenant: str = Field(examples=["chat"])
    requests: int = Field(examples=[240], description="Judged by TTFT, the late that wait included.")
    ttft_attainment_ratio: float | None
    ttft_p99_ms: float | None
    gaps: int
    tbt_attainment_ratio: float | None
    tbt_p99_ms: float | None


class EffectMeasuredOut(BaseModel):
    """The minute before a change, or the time since."""

    length_ms: float = Field(examples=[60000.0])
    sms: SmUseOut
    tenants: list[StandingOut] = Field(description="Those with traffic, at most 200, by name.")


class ReplayedTenantOut(BaseModel):
    """Shares in time that one tenant's requests since the change are forecast to get."""

    tenant: str = Field(examples=["chat"])
    requests: int
    ttft_before_ratio: float | None = Field(description="With what was in force before the change.")
    ttft_after_ratio: float | None = Field(description="With what is in force.")
    tbt_before_ratio: float | None = Field(description="Of gaps, without the change.")
    tbt_after_ratio: float | None = Field(description="Of gaps, with it.")


class EffectReplayOut(BaseModel):
    """What the change did, apart from the load: the requests since, forecast under both settings."""

    requests: int
    why_not: str | None = Field(
        examples=["no request came since"], description="Why nothing was replayed; else null."
    )
    tenants: list[ReplayedTenantOut]


class EffectOut(BaseModel):
    """One change."""

    at: datetime
    kind: str = Field(examples=["slo"], description="`slo`, `policy` or `profile`.")
    tenant: str | None = Field(description="Null for what concerns all.")
    text: str = Field(examples=["TBT 40 to 30 ms"])
    state: State = Field(
        description="`too_early` in the first minute, `measuring` in the first five, then `measured`; "
        "`overtaken` if another change, or an engine's or the daemon's start, came within the first minute."
    )
    mixed: bool = Field(description="Another change, or an engine's start, was in the minute before.")
    before: EffectMeasuredOut
    after: EffectMeasuredOut | None = Field(description="Null while it is too early, or overtaken.")
    replay: EffectReplayOut | None = Field(description="Null until it is measured.")


class EffectsOut(BaseModel):
    """What changes did, newest first."""

    least_ms: float = Field(examples=[to_ms(LEAST_S)], description="Before this nothing is compared.")
    most_ms: float = Field(examples=[to_ms(MOST_S)], description="After this a comparison is final.")
    effects: list[EffectOut] = Field(examples=[[]])


def effect_routes(telemetry: Telemetry) -> APIRouter:
    """`/effects`."""
    router = admin_router(tags=["history"])

    # Asynchronous: the windows may only be read by the loop that writes them.
    @router.get("/effects", responses=documented(404), response_model=EffectsOut)
    async def list_effects(
        tenant: Annotated[
            str | None, Query(description="Only changes of this tenant, and of what concerns all.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=KEPT)] = KEPT,
    ) -> Response:
        """Show what the latest changes of targets, policy and profile did: the minute before, and since."""
        if tenant is not None and tenant not in telemetry.directory.tenants:
            raise NotFoundError(f"there is no tenant {tenant[:64]!r}")
        told = await telemetry.effects.told()
        found = [one for one in told if tenant is None or one.tenant in (None, tenant)]
        answer = EffectsOut(least_ms=to_ms(LEAST_S), most_ms=to_ms(MOST_S), effects=[])
        return await asyncio.to_thread(lambda: long_list(answer, "effects", effects_of(found[:limit])))

    return router


def effects_of(found: Iterable[Effect]) -> list[EffectOut]:
    """What changes did, as it is told."""
    return [_effect(one) for one in found]


def _effect(one: Effect) -> EffectOut:
    return EffectOut(
        at=instant(one.at_s),
        kind=one.kind,
        tenant=one.tenant,
        text=one.text,
        state=one.state,
        mixed=one.is_mixed,
        before=_measured(one.before),
        after=None if one.after is None else _measured(one.after),
        replay=None if one.replay is None else _replay(one.replay),
    )


def _replay(replay: Replay) -> EffectReplayOut:
    tenants = [
        ReplayedTenantOut(
            tenant=name,
            requests=one.requests,
            ttft_before_ratio=rounded(one.ttft_before),
            ttft_after_ratio=rounded(one.ttft_after),
            tbt_before_ratio=rounded(one.tbt_before),
            tbt_after_ratio=rounded(one.tbt_after),
        )
        for name, one in sorted(replay.tenants.items())
    ]
    return EffectReplayOut(requests=replay.requests, why_not=replay.why_not, tenants=tenants)


def _measured(measured: Measured) -> EffectMeasuredOut:
    return EffectMeasuredOut(
        length_ms=to_ms(measured.length_s),
        sms=_sms(measured.sms),
        tenants=[_standing(name, measured.tenants[name]) for name in sorted(measured.tenants)],
    )


def _sms(use: SmUse) -> SmUseOut:
    return SmUseOut.model_validate(use, from_attributes=True)


def _standing(name: str, standing: Standing) -> StandingOut:
    return StandingOut(
        tenant=name,
        requests=standing.ttft.judged,
        ttft_attainment_ratio=rounded(standing.ttft.attainment_ratio),
        ttft_p99_ms=standing.ttft_ms.p99,
        gaps=standing.tbt.judged,
        tbt_attainment_ratio=rounded(standing.tbt.attainment_ratio),
        tbt_p99_ms=standing.tbt_gap_ms.p99,
    )
