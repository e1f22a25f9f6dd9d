"""How well targets are met, and what is wrong, over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import AlarmEvent, Verdict
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.attainment import WINDOWS_S, Attainment, ViolationCounts
from pdmuxd.controlplane.telemetry.serializers import rounded
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts
from pdmuxd.engine.core.errors import NotFoundError


class WindowOut(BaseModel):
    """One target over one window."""

    window_ms: float = Field(examples=[300000.0])
    requests: int = Field(description="With a first token, or with a gap.")
    judged: int = Field(description="For TTFT these requests, for TBT the gaps between their tokens.")
    missed: int = Field(description="Of what was judged.")
    attainment_ratio: float | None = Field(description="Null without traffic.")
    engine_judged: int = Field(description="As the engine made them; the others are as clients saw them.")
    engine_missed: int
    budget_left_ratio: float = Field(
        description="Of this window's error budget; negative if overdrawn, 1 without traffic."
    )
    burn: float | None = Field(
        description="How many times too fast the error budget is used; null without requests."
    )


class TenantAttainmentOut(BaseModel):
    """One tenant."""

    tenant: str = Field(examples=["chat"])
    target_ratio: float = Field(description="The attainment that its SLO asks for.")
    budget_left_ratio: float = Field(
        description="Of the last hour's error budget, of the target that has less; negative if overdrawn."
    )
    ttft: list[WindowOut]
    tbt: list[WindowOut]
    requests: int = Field(description="Ended in the engine since the daemon started.")
    refused: int = Field(description="Answered with 429 since the daemon started.")
    in_flight: int
    waiting: int = Field(description="In flight without a first token, at the gateway and in the engine.")
    late_now: int = Field(
        description="Of these, past their TTFT target. They count as missed in every window of `ttft`."
    )
    oldest_wait_ms: float = Field(description="How long the oldest of `waiting` has waited; 0 without any.")
    verdict: Verdict = Field(
        description="Over the last five minutes, late ones of now included: whether both targets are met."
    )


class AttainmentOut(BaseModel):
    """All tenants, by name."""

    windows_ms: list[float] = Field(examples=[[60000.0, 300000.0, 3600000.0]])
    tenants: list[TenantAttainmentOut]


class AlarmsOut(BaseModel):
    """What is wrong, and what was."""

    active: list[AlarmEvent] = Field(description="Raised and not cleared, oldest first.", examples=[[]])
    recent: list[AlarmEvent] = Field(description="The latest that were raised or cleared, newest first.")


def attainment_routes(telemetry: Telemetry) -> APIRouter:
    """`/attainment`, `/alarms`."""
    router = admin_router(tags=["attainment"])

    # Asynchronous: reading a window moves it on, which only the loop that writes it may do.
    @router.get("/attainment", responses=documented(404))
    async def get_attainment(tenant: Annotated[str | None, Query()] = None) -> AttainmentOut:
        """Show per tenant which share of requests and gaps was in time, and how fast the budget is used."""
        known = telemetry.directory.tenants
        if tenant is not None and tenant not in known:
            raise NotFoundError(f"there is no tenant {tenant[:64]!r}")
        names = sorted(known) if tenant is None else [tenant]
        in_flight = telemetry.in_flight()
        waiting = telemetry.open_counts(telemetry.clock())
        return AttainmentOut(
            windows_ms=[to_ms(window_s) for window_s in WINDOWS_S],
            tenants=[
                _tenant(telemetry, name, in_flight.get(name, 0), waiting.get(name, NOTHING_OPEN))
                for name in names
            ],
        )

    @router.get("/alarms", responses=documented())
    def list_alarms() -> AlarmsOut:
        """Show the alarms that are raised, and the latest changes."""
        return AlarmsOut(active=list(telemetry.alarms.active()), recent=list(telemetry.alarms.recent()))

    return router


def _tenant(telemetry: Telemetry, name: str, in_flight: int, waiting: OpenCounts) -> TenantAttainmentOut:
    now_s = telemetry.clock()
    attainment = telemetry.tenants.get(name) or Attainment()
    target_ratio = telemetry.directory.tenants[name].slo.attainment_ratio
    ttft, tbt = [], []
    for window_s in WINDOWS_S:
        ttft_violations, tbt_violations = attainment.violations(now_s, window_s, waiting)
        ttft.append(_window(ttft_violations, window_s, target_ratio))
        tbt.append(_window(tbt_violations, window_s, target_ratio))
    return TenantAttainmentOut(
        tenant=name,
        target_ratio=target_ratio,
        budget_left_ratio=attainment.budget_left_ratio(now_s, target_ratio, waiting),
        ttft=ttft,
        tbt=tbt,
        requests=attainment.requests,
        refused=attainment.refused,
        in_flight=in_flight,
        waiting=waiting.waiting,
        late_now=waiting.late,
        oldest_wait_ms=to_ms(round(waiting.oldest_wait_s, 3)),
        verdict=attainment.verdict(now_s, target_ratio, waiting),
    )


def _window(violations: ViolationCounts, window_s: float, target_ratio: float) -> WindowOut:
    return WindowOut(
        window_ms=to_ms(window_s),
        requests=violations.requests,
        judged=violations.judged,
        missed=violations.missed,
        engine_judged=violations.engine_judged,
        engine_missed=violations.engine_missed,
        budget_left_ratio=round(1.0 - (violations.burn(target_ratio) or 0.0), 6),
        attainment_ratio=rounded(violations.attainment_ratio),
        burn=rounded(violations.burn(target_ratio)),
    )
