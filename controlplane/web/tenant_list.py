"""All tenants by name: found by a part of their name, in pages, and as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from pdmuxd.controlplane.api.attainment import READ_AT_ONCE
from pdmuxd.controlplane.api.usage import CSV, csv_cell
from pdmuxd.controlplane.events.messages import TenantLoad
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.attainment import Attainment
from pdmuxd.controlplane.telemetry.frames import tenant_load
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN
from pdmuxd.controlplane.tenants.names import TenantNames
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.controlplane.tenants.tenant_fields import NAME_MAX
from pdmuxd.controlplane.web.live import row_of
from pdmuxd.controlplane.web.overview import PastTenant, past_tenants
from pdmuxd.controlplane.web.pages import page, page_router, sheet
from pdmuxd.controlplane.web.rendering import HEADERS
from pdmuxd.controlplane.web.tables import Column, CsvName, Link, Table, count, share
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown
from pdmuxd.tui.show.words import met_ratio

PAGE = 50
MOST_PAST = 500

Part = Annotated[str, Query(max_length=NAME_MAX, description="A part of the name.")]
After = Annotated[str, Query(max_length=NAME_MAX, description="Go on behind this name.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A tenant in CSV; times are milliseconds, shares are of one."""

    tenant: str
    enabled: bool
    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float
    e2e_ms: float | None
    attainment_ratio: float
    verdict: str
    met_ratio_5min: float | None
    late_now: int
    waiting: int
    in_flight: int
    requests_per_s: float
    ttft_p99_ms: float | None
    tbt_p99_ms: float | None
    budget_left_ratio: float | None


def tenant_list_routes(telemetry: Telemetry, history: History) -> APIRouter:
    """`/ui/tenants` and the same as CSV."""
    router, names_of = page_router(), TenantNames()

    def matching(part: str) -> Sequence[str]:
        names = names_of(telemetry.directory.tenants)
        return [name for name in names if part.lower() in name] if part else names

    @router.get("/tenants")
    async def list_tenants(
        request: Request,
        q: Part = "",
        after: After = "",
        at: At = None,
        window: MaybeWindow = None,
        csv: CsvName = "",
    ) -> Response:
        asked = Shown.asked(at, window, time.time(), {"q": q}, newest="now")
        if not asked.is_all:
            return await show_past(request, asked, q, csv)
        found = matching(q)
        behind = bisect_right(found, after)
        shown = [telemetry.directory.tenants[name] for name in found[behind : behind + PAGE]]
        now = await loads(telemetry, shown)
        rows = [(one, row_of(load)) for one, load in zip(shown, now, strict=True)]
        return await asyncio.to_thread(
            page,
            request,
            "tenants.html",
            title="Tenants",
            shown=asked,
            rows=rows,
            total=len(found),
            q=q,
            after=after,
            next_after=shown[-1].name if len(found) > behind + PAGE else None,
        )

    async def show_past(request: Request, shown: Shown, q: str, csv: str) -> Response:
        found = [one for one in await past_tenants(history, shown) if q.lower() in one.tenant]
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            title="Tenants",
            heading="Tenants, as they were",
            lines=("Targets are told of now alone: each tenant's page has their history.",),
            shown=shown,
            tables=(_past(found, shown),),
        )

    @router.get("/tenants.csv")
    async def send_csv(q: Part = "") -> Response:
        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="tenants.csv"'}
        found = [telemetry.directory.tenants[name] for name in matching(q)]
        return StreamingResponse(_csv(telemetry, found), media_type=CSV, headers=headers)

    return router


def _past(found: Sequence[PastTenant], shown: Shown) -> Table:
    query = shown.query(q=None)
    return Table(
        name="tenants",
        title="Tenants that asked for anything",
        note=f"worst first, at most {MOST_PAST}",
        columns=(
            Column("tenant", "Tenant"),
            share("met_ratio", "In time"),
            count("requests", "Requests"),
            count("refused", "Refused"),
        ),
        rows=[
            (Link(one.tenant, f"/ui/tenants/{one.tenant}{query}"), one.met_ratio, one.requests, one.refused)
            for one in found[:MOST_PAST]
        ],
        empty="Nobody asked for anything in this time.",
    )


async def loads(telemetry: Telemetry, tenants: Sequence[TenantRecord]) -> list[TenantLoad]:
    """How tenants are doing now. In the event loop, a few in each turn: to read a window moves it on."""
    now_s, in_flight = telemetry.clock(), telemetry.in_flight()
    waiting, found = telemetry.open_lately(now_s), list[TenantLoad]()
    for number, one in enumerate(tenants, start=1):
        load = tenant_load(
            one,
            telemetry.tenants.get(one.name) or Attainment(),
            in_flight=in_flight.get(one.name, 0),
            waiting=waiting.get(one.name, NOTHING_OPEN),
            cap=telemetry.tbt_caps.get(one.name),
            now_s=now_s,
        )
        found.append(load)
        if number % READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def _csv(telemetry: Telemetry, tenants: Sequence[TenantRecord]) -> AsyncIterator[str]:
    yield _lines([tuple(field.name for field in fields(Line))])
    for begin in range(0, len(tenants), READ_AT_ONCE):
        some = tenants[begin : begin + READ_AT_ONCE]
        lines = [astuple(_line(*pair)) for pair in zip(some, await loads(telemetry, some), strict=True)]
        yield _lines([tuple("" if value is None else csv_cell(value) for value in line) for line in lines])
        await asyncio.sleep(0)


def _line(tenant: TenantRecord, load: TenantLoad) -> Line:
    met = met_ratio(load)
    return Line(
        tenant=tenant.name,
        enabled=tenant.enabled,
        ttft_fixed_ms=to_ms(tenant.slo.ttft_fixed_s),
        ttft_per_1k_new_tokens_ms=to_ms(tenant.slo.ttft_per_1k_new_tokens_s),
        tbt_ms=to_ms(tenant.slo.tbt_s),
        e2e_ms=None if tenant.slo.e2e_s is None else to_ms(tenant.slo.e2e_s),
        attainment_ratio=tenant.slo.attainment_ratio,
        verdict=load.verdict,
        met_ratio_5min=None if met is None else round(met, 6),
        late_now=load.late_now,
        waiting=load.waiting,
        in_flight=load.in_flight,
        requests_per_s=load.requests_per_s,
        ttft_p99_ms=load.ttft_ms.p99,
        tbt_p99_ms=load.tbt_gap_ms.p99,
        budget_left_ratio=load.budget_left_ratio,
    )


def _lines(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
