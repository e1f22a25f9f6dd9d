"""Incidents over REST: who did not get what was promised, from when to when, why, and what would help."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from pdmuxd.controlplane.api.long_lists import long_list
from pdmuxd.controlplane.api.pages import PAGE_MAX
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import IncidentEvent
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import NotFoundError

State = Literal["open", "over"]
MADE_AT_ONCE = 20
"""In one turn of the event loop."""


class IncidentsOut(BaseModel):
    """Incidents: on the first page those that are open, the worst first; then the others, newest first."""

    incidents: list[IncidentEvent] = Field(description="As the event `incident` tells them.")
    next_before: datetime | None = Field(
        examples=["2026-01-31T11:57:00Z"],
        description="Ask with this as `before` for the next page; null at the end.",
    )


def incident_routes(telemetry: Telemetry, history: History, store: IncidentStore) -> APIRouter:
    """`/incidents`."""
    router = admin_router(prefix="/incidents", tags=["history"])

    @router.get("", responses=documented(), response_model=IncidentsOut)
    async def list_incidents(
        state: Annotated[State | None, Query(description="Only those that are open, or over.")] = None,
        tenant: Annotated[str | None, Query(description="Only of this tenant.")] = None,
        cause: Annotated[str | None, Query(description="Such as queued.")] = None,
        from_: Annotated[AwareDatetime | None, Query(alias="from", description="Not over before.")] = None,
        to: Annotated[AwareDatetime | None, Query(description="Begun before.")] = None,
        before: Annotated[AwareDatetime | None, Query(description="Only older ones.")] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    ) -> Response:
        """List times in which a tenant did not get what it is promised, as all surfaces tell them."""
        found = await listed(
            telemetry,
            history,
            store,
            state=state,
            tenant=tenant,
            cause=cause,
            start=from_,
            end=to,
            before=before,
            limit=limit,
        )
        next_before = found[-1].began_at if len(found) >= limit else None
        answer = IncidentsOut(incidents=[], next_before=next_before)
        return await asyncio.to_thread(long_list, answer, "incidents", found)

    @router.get("/{incident_id}", responses=documented(404))
    async def get_incident(
        incident_id: Annotated[str, Path(max_length=100, description="As the list tells it.")],
    ) -> IncidentEvent:
        """Show one incident, as it is now or as it ended."""
        found = telemetry.incidents.find(incident_id, telemetry.clock())
        if found is None and "\0" not in incident_id:
            found = await history.past_incidents(partial(store.find, incident_id))
        if found is None:
            raise NotFoundError(f"there is no incident {incident_id[:100]!r}")
        return found

    return router


async def listed(
    telemetry: Telemetry,
    history: History,
    store: IncidentStore,
    *,
    limit: int,
    state: State | None = None,
    tenant: str | None = None,
    cause: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    before: datetime | None = None,
) -> list[IncidentEvent]:
    """Incidents that are open as they are now, then those that are kept. Raises: StoreError."""
    if any("\0" in text for text in (tenant, cause) if text is not None):
        return []  # which a server such as PostgreSQL would refuse to look for
    now: list[IncidentEvent] = []
    if before is None and state != "over":
        most = limit if end is None else None
        for one in telemetry.incidents.each_open(telemetry.clock(), most=most, tenant=tenant, cause=cause):
            if end is None or one.began_at < end:
                now.append(one)
            if len(now) % MADE_AT_ONCE == 0:
                await asyncio.sleep(0)
    ask = partial(
        store.list,
        tenant=tenant,
        cause=cause,
        is_open=None if state is None else state == "open",
        start=start,
        end=end,
        before=before,
        limit=limit,
    )
    known = {one.incident_id for one in now}
    kept = [one for one in await history.past_incidents(ask) if one.incident_id not in known]
    return [*now, *kept][:limit]
