"""How well targets are met, and what is wrong, over REST."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.access import own_tenant
from pdmuxd.controlplane.api.attainment_bodies import AttainmentOut, TenantCounts, TotalsOut, encoded
from pdmuxd.controlplane.api.pages import PAGE_MAX, link_next
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import AlarmEvent, Verdict
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.attainment import WINDOWS_S, Attainment
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts, summed
from pdmuxd.controlplane.tenants.names import TenantNames
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.controlplane.tenants.tenant_fields import NAME_MAX
from pdmuxd.engine.core.errors import NotFoundError
from pdmuxd.engine.core.slo import PriorityClass

PAGE_DEFAULT = 100
READ_AT_ONCE = 20
"""Tenants that are read before others have their turn (`python tests/lab admin-holds` measures the turn)."""
FIND_AT_ONCE = 500
"""Names that are looked at before others have their turn."""

_NOTHING_YET = Attainment()


class AlarmsOut(BaseModel):
    """What is wrong, and what was."""

    active: list[AlarmEvent] = Field(description="Raised and not cleared, oldest first.", examples=[[]])
    recent: list[AlarmEvent] = Field(description="The latest that were raised or cleared, newest first.")


def attainment_routes(telemetry: Telemetry) -> APIRouter:
    """`/attainment`, `/alarms`."""
    router, names_of = admin_router(tags=["attainment"]), TenantNames()

    # Asynchronous: reading a window moves it on, which only the loop that writes it may do. That loop serves
    # all streams, so tenants are read in slices, and put into words in a thread.
    @router.get("/attainment", responses=documented(404), response_model=AttainmentOut)
    async def get_attainment(
        request: Request,
        response: Response,
        tenant: Annotated[str | None, Query(description="Only this one.")] = None,
        after: Annotated[str, Query(description="Go on behind this name.")] = "",
        limit: Annotated[int, Query(ge=0, le=PAGE_MAX, description="0: only the totals.")] = PAGE_DEFAULT,
        active: Annotated[
            bool,
            Query(description="Only tenants with something in flight, or with traffic in the last hour."),
        ] = False,
        q: Annotated[
            str | None, Query(max_length=NAME_MAX, description="Only names that have this in them.")
        ] = None,
        priority_class: Annotated[PriorityClass | None, Query(alias="class")] = None,
        state: Annotated[Verdict | None, Query(description="Only tenants whose verdict this is.")] = None,
    ) -> Response:
        """Show per tenant which share of requests and gaps was in time, and how fast the budget is used."""
        known = telemetry.directory.tenants
        if tenant is not None and tenant not in known:
            raise NotFoundError(f"there is no tenant {tenant[:64]!r}")
        waiting, in_flight = telemetry.open_lately(telemetry.clock()), telemetry.in_flight()
        wanted = _Wanted(
            q=q,
            priority_class=priority_class,
            state=state,
            among=(telemetry.states.active(), waiting, in_flight) if active else None,
        )
        names = await _found(
            telemetry, (tenant,) if tenant else names_of(known), wanted, after=after, limit=limit
        )
        read = []
        for name in names:
            tenant_now = telemetry.directory.tenants.get(name)
            if tenant_now is None:
                continue  # deleted meanwhile
            still = waiting.get(name, NOTHING_OPEN)
            read.append(_read(telemetry, tenant_now, in_flight.get(name, 0), still))
            if len(read) % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
        link_next(request, response, names[-1] if tenant is None and 0 < limit == len(names) else None)
        # A key may know of its own tenant only.
        totals = _totals(telemetry, waiting, in_flight) if own_tenant(request) is None else None
        text = await asyncio.to_thread(encoded, totals, read)
        return Response(text, media_type="application/json", headers=dict(response.headers))

    @router.get("/alarms", responses=documented())
    def list_alarms() -> AlarmsOut:
        """Show the alarms that are raised, and the latest changes."""
        return AlarmsOut(active=list(telemetry.alarms.active()), recent=list(telemetry.alarms.recent()))

    return router


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    q: str | None
    priority_class: PriorityClass | None
    state: Verdict | None
    among: Sequence[Container[str]] | None

    def has(self, tenant: TenantRecord, verdict: Verdict) -> bool:
        return (
            (self.q is None or self.q.lower() in tenant.name)
            and (self.priority_class is None or tenant.priority_class == self.priority_class)
            and (self.state is None or verdict == self.state)
            and (self.among is None or any(tenant.name in each for each in self.among))
        )


async def _found(
    telemetry: Telemetry, names: Sequence[str], wanted: _Wanted, *, after: str, limit: int
) -> list[str]:
    """The first names behind `after` that are wanted."""
    known, states = telemetry.directory.tenants, telemetry.states
    found: list[str] = []
    for looked_at, name in enumerate(islice(names, bisect_right(names, after), None), 1):
        if len(found) >= limit:
            break
        if name in known and wanted.has(known[name], states.of(name).verdict):
            found.append(name)
        if looked_at % FIND_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


def _read(telemetry: Telemetry, tenant: TenantRecord, in_flight: int, waiting: OpenCounts) -> TenantCounts:
    now_s = telemetry.clock()
    attainment = telemetry.tenants.get(tenant.name) or _NOTHING_YET
    return TenantCounts(
        name=tenant.name,
        target_ratio=tenant.slo.attainment_ratio,
        windows=[(each, attainment.violations(now_s, each, waiting)) for each in WINDOWS_S],
        good=attainment.good(now_s),
        outcomes=dict(attainment.outcomes),
        requests=attainment.requests,
        refused=attainment.refused,
        in_flight=in_flight,
        waiting=waiting,
    )


def _totals(
    telemetry: Telemetry, waiting: Mapping[str, OpenCounts], in_flight: Mapping[str, int]
) -> TotalsOut:
    states, open_now, everyone = telemetry.states, summed(waiting.values()), telemetry.everyone
    return TotalsOut(
        tenants=len(telemetry.directory.tenants),
        active=len(states.active()) + sum(name not in states.active() for name in {*waiting, *in_flight}),
        met=states.verdicts["met"],
        missed=states.verdicts["missed"],
        in_flight=sum(in_flight.values()),
        waiting=open_now.waiting,
        late_now=open_now.late,
        oldest_wait_ms=to_ms(round(open_now.oldest_wait_s, 3)),
        requests=everyone.requests,
        refused=everyone.refused,
    )
