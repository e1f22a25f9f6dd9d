"""The overview: verdict, the GPU as one strip of SMs, demand, tenants worst first, alarms, what changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.problems import problem
from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.alarms import AlarmStore, PastAlarm
from pdmuxd.controlplane.history.batch import NODE
from pdmuxd.controlplane.history.columns import Column, empty, merge
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.periods import HOUR_S, MINUTE_S
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.live import MOST_STREAMS, Live, Now
from pdmuxd.controlplane.web.pages import page, page_router, part
from pdmuxd.controlplane.web.pictures import Picture, met_ratio, picture
from pdmuxd.controlplane.web.rendering import HEADERS
from pdmuxd.controlplane.web.tables import CsvName, Table, csv_of, plain_table
from pdmuxd.controlplane.web.times import LIVE_STEP_S, At, Shown, Window
from pdmuxd.tui.show.words import met_ratio as load_met_ratio

ROWS = 20
"""Tenants on the overview; the others are in the list of tenants."""
MARKS = 12
"""Changes that are listed; the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTenant:
    """What a tenant got in a stretch of time that is over."""

    tenant: str
    requests: int
    refused: int
    met_ratio: float | None


def home_of(caller: Caller) -> str:
    """Where a caller begins: a tenant's key sees its tenant alone."""
    return "/ui/overview" if caller.tenant is None else f"/ui/tenants/{caller.tenant}"


def overview_routes(
    telemetry: Telemetry, history: History, alarms: AlarmStore, pictures: Pictures
) -> APIRouter:
    """`/ui`, `/ui/overview` and what it asks for while it is open."""
    router = page_router()
    live = Live(telemetry)

    @router.get("")
    async def lead_on(request: Request) -> Response:
        return RedirectResponse(home_of(caller_of(request.scope)), 303, headers=HEADERS)

    @router.get("/overview")
    async def show_overview(
        request: Request, at: At = None, window: Window = "30m", csv: CsvName = ""
    ) -> Response:
        shown = Shown.of(at, window, time.time())
        drawn, now = await pictures.of(shown), live.now() if shown.is_live else None
        past = [] if now else (await past_tenants(history, shown))[:ROWS]
        past_alarms = [] if now else await _past_alarms(history, alarms, shown)
        if csv:
            return csv_of(_tables(now, past, past_alarms, drawn), csv, file="overview")
        engine = telemetry.status().hello
        # Off the event loop: to draw and to write a page takes milliseconds, in which tokens would wait.
        return await asyncio.to_thread(
            page,
            request,
            "overview.html",
            title="Overview",
            shown=shown,
            picture=drawn,
            device=engine.device if engine is not None else "GPU",
            total_sms=engine.total_sms if engine is not None else None,
            now=now,
            rows=ROWS,
            past=past,
            past_alarms=past_alarms,
        )

    @router.get("/overview/picture")
    async def show_picture(window: Window = "30m") -> Response:
        shown = Shown.of(None, window, time.time())
        return await asyncio.to_thread(part, "picture.html", picture=await pictures.of(shown))

    @router.get("/live")
    async def stream_live() -> Response:
        if live.streams >= MOST_STREAMS:
            detail = f"{MOST_STREAMS} pages are live already, the limit"
            return problem(503, "too-many-clients", detail, headers={"Retry-After": "5"})
        # Proxies that buffer would hold events back.
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(live.stream(), media_type="text/event-stream", headers=headers)

    return router


class Pictures:
    """Pictures of a node; those of the present are drawn once a step for all pages that show them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._drawn: dict[str, tuple[int, Picture]] = {}

    async def of(self, shown: Shown) -> Picture:
        step = int(shown.now_s // LIVE_STEP_S)
        if shown.is_live and shown.window in self._drawn and self._drawn[shown.window][0] == step:
            return self._drawn[shown.window][1]
        points = await self._history.read(NODE, 0, shown.period)
        marks = await self._history.marks(shown.period, tenant=None, since_ms=0)
        drawn = await asyncio.to_thread(picture, shown.period, points, marks[-MARKS:])
        if shown.is_live:
            self._drawn[shown.window] = step, drawn
        return drawn


def _tables(
    now: Now | None, past: Sequence[PastTenant], past_alarms: Sequence[PastAlarm], drawn: Picture
) -> Sequence[Table]:
    """What the page shows in its tables and lists; of tenants all that are told of, a hundred at most."""
    if now is None:
        tenants = plain_table(
            "tenants",
            ("tenant", "met_ratio", "requests", "refused"),
            [(one.tenant, one.met_ratio, one.requests, one.refused) for one in past],
        )
        raised = [(a.severity, a.kind, a.tenant, a.began_at, a.ended_at, a.text) for a in past_alarms]
    else:
        tenants = plain_table(
            "tenants",
            (
                *("tenant", "verdict", "met_ratio_5min", "promised_ratio", "late_now", "waiting"),
                *("oldest_wait_ms", "ttft_p99_ms", "tbt_p99_ms", "requests_per_s", "budget_left_ratio"),
            ),
            [
                (
                    *(one.tenant, one.verdict, load_met_ratio(one), one.target_ratio, one.late_now),
                    *(one.waiting, one.oldest_wait_ms, one.ttft_ms.p99, one.tbt_gap_ms.p99),
                    *(one.requests_per_s, one.budget_left_ratio),
                )
                for one in now.loads
            ],
        )
        raised = [(a.severity, a.kind, a.tenant, a.since, None, a.text) for a in now.alarms]
    return (
        tenants,
        plain_table("alarms", ("severity", "kind", "tenant", "began_at", "ended_at", "text"), raised),
        plain_table("changes", ("at", "text"), [(mark.at, mark.text) for mark in reversed(drawn.marks)]),
    )


async def past_tenants(history: History, shown: Shown) -> Sequence[PastTenant]:
    """Tenants that asked for anything in a stretch of time that is over, worst first. Raises: StoreError."""
    start_s = shown.period.start_s
    # Of what is so old that its minutes are dropped, whole hours are known.
    edge_s = MINUTE_S if start_s >= history.kept_since_s(MINUTE_S, shown.now_s) else HOUR_S
    start_s, end_s = int(start_s // edge_s * edge_s), int(-(-shown.end_s // edge_s) * edge_s)
    counts: dict[str, list[int]] = {}
    for use in await history.usage(start_s, end_s, now_s=shown.now_s, tenant=None, since_ms=None):
        merge(counts.setdefault(use.series.tenant, empty()), use.counts)
    found = [
        PastTenant(
            tenant=name, requests=row[Column.ENDED], refused=row[Column.REFUSED], met_ratio=met_ratio([row])
        )
        for name, row in counts.items()
    ]
    return sorted(found, key=lambda one: (1.0 if one.met_ratio is None else one.met_ratio, one.tenant))


async def _past_alarms(history: History, alarms: AlarmStore, shown: Shown) -> Sequence[PastAlarm]:
    return await history.past_alarms(alarms, start=instant(shown.period.start_s), end=shown.end, limit=MARKS)
