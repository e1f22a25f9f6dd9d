"""The page of incidents: who was hurt, from when to when, by how much, why, and what would have helped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from pydantic import AwareDatetime
from starlette.responses import Response

from pdmuxd.controlplane.api.incidents import listed
from pdmuxd.controlplane.events.messages import IncidentEvent, instant
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.rendering import moment
from pdmuxd.controlplane.web.tables import Column, CsvName, Link, Table, long, share, when
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.incidents import harm_in_words, help_in_words, lasted_s, missed_in_words

ROWS = 100
NAME_MAX = 100
Name = Annotated[str, Query(max_length=NAME_MAX, description="Only of this one.")]
Before = Annotated[AwareDatetime | None, Query(description="Only older ones.")]


def incident_routes(telemetry: Telemetry, history: History, store: IncidentStore) -> APIRouter:
    """`/ui/incidents`."""
    router = page_router()

    @router.get("/incidents")
    async def list_incidents(
        request: Request,
        tenant: Name = "",
        cause: Name = "",
        at: At = None,
        window: MaybeWindow = None,
        before: Before = None,
        csv: CsvName = "",
    ) -> Response:
        shown = Shown.asked(at, window, time.time(), {"tenant": tenant, "cause": cause})
        bounds = None if shown.is_all else shown.period
        found = await listed(
            telemetry,
            history,
            store,
            tenant=tenant or None,
            cause=cause or None,
            start=None if bounds is None else instant(bounds.start_s),
            end=None if bounds is None else instant(bounds.end_s),
            before=before,
            limit=ROWS,
        )
        older = shown.query(before=found[-1].began_at.isoformat()) if len(found) == ROWS else None
        open_ = sum(one.state == "open" for one in found)
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            "search.html",
            title="Incidents",
            heading=f"{open_} of these incidents {'goes' if open_ == 1 else 'go'} on"
            if open_
            else "No incident goes on",
            state="bad" if open_ else "good",
            shown=shown,
            asked=[("tenant", "Tenant", tenant), ("cause", "Cause", cause)],
            tables=(_table(found, older),),
        )

    return router


def _table(found: Sequence[IncidentEvent], older: str | None) -> Table:
    return Table(
        name="incidents",
        title="What was promised and not kept",
        note="those that go on first, then the newest; at worst: in half a minute",
        columns=(
            when("began_at", "Began"),
            Column("tenant", "Tenant"),
            Column("missed", "Missed"),
            share("worst_ratio", "Kept at worst"),
            share("promised_ratio", "Promised"),
            Column("lasted_s", "Lasted", formats.duration, "n"),
            Column("over_at", "Over", moment, unknown=Markup("<b>goes on</b>")),
            Column("cause", "Cause"),
            long("text", "Likely cause"),
            long("harm", "Who was hurt, by how much"),
            long("help", "What would help"),
        ),
        rows=[
            (
                Link(one.began_at, f"/ui/overview?at={one.last_missed_at:%Y-%m-%dT%H:%M:%SZ}"),
                Link(one.tenant, f"/ui/tenants/{one.tenant}"),
                missed_in_words(one),
                min((each.worst_ratio for each in one.targets), default=None),
                one.promised_ratio,
                round(lasted_s(one, one.at), 1),
                one.over_at,
                one.cause,
                one.text,
                harm_in_words(one),
                help_in_words(one),
            )
            for one in found
        ],
        empty="Every promise was kept.",
        next_address=older,
    )
