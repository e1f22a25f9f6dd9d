"""Requests and decisions: the latest of each, and one request's life on a time line."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pdmuxd.controlplane.api.decisions import decided_meanwhile
from pdmuxd.controlplane.events.messages import DecisionEvent, RequestEvent
from pdmuxd.controlplane.telemetry import serializers
from pdmuxd.controlplane.telemetry.decisions import SeenDecision, decision_event, newest
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.tenant_fields import NAME_MAX
from pdmuxd.controlplane.web.pages import page, page_router
from pdmuxd.engine.core.errors import NotFoundError
from pdmuxd.engine.core.types import Reason
from pdmuxd.tui.show.words import CAUSES, REASONS

ROWS = 100
LOOKED_AT = 5000
"""Decisions of which runs are made: about a minute's."""
LAST_S = 10.0
"""Of which the shares of reasons are told, as in the console."""

Tenant = Annotated[str, Query(max_length=NAME_MAX, description="Only of this tenant.")]
Which = Literal["ended", "missed", "in_flight"]
ReasonName = Annotated[Reason | Literal[""], Query(description="Only decisions with this reason.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a request's life, in milliseconds since its arrival."""

    name: str
    kind: str
    start_ms: float
    end_ms: float


def request_routes(telemetry: Telemetry) -> APIRouter:
    """`/ui/requests` and `/ui/requests/{request_id}`."""
    router = page_router()

    @router.get("/requests")
    def list_requests(request: Request, which: Which = "ended", tenant: Tenant = "") -> Response:
        known = telemetry.requests
        lifecycles = known.in_flight() if which == "in_flight" else known.ended()

        def is_wanted(one: RequestLifecycle) -> bool:
            return (not tenant or one.tenant == tenant) and (which != "missed" or bool(one.violations))

        found = [serializers.request(one) for one in reversed(lifecycles) if is_wanted(one)][:ROWS]
        return page(
            request,
            "requests.html",
            title="Requests",
            requests=found,
            which=which,
            tenant=tenant,
            kept=known.kept,
            causes=CAUSES,
        )

    @router.get("/requests/{request_id}")
    def show_request(request: Request, request_id: str) -> Response:
        lifecycle = telemetry.requests.find(request_id)
        if lifecycle is None:
            kept = f"the last {telemetry.requests.kept} that ended are kept"
            raise NotFoundError(f"there is no request {request_id[:64]!r}; {kept}")
        one = serializers.request(lifecycle)
        found = phases(one)
        return page(
            request,
            "request.html",
            title=f"Request {request_id[:8]}",
            one=one,
            phases=found,
            length_ms=max((phase.end_ms for phase in found), default=0.0),
            decided=decided_meanwhile(telemetry, lifecycle),
            reasons=REASONS,
        )

    return router


def phases(one: RequestEvent) -> Sequence[Phase]:
    """Waiting, prefill, decode: what is known of them."""
    at_ms = {point.what: point.at_ms for point in one.timeline}
    instants = [at_ms.get(name) for name in ("arrived", "prefill_started", "first_token", "ended")]
    kinds = (("waited", "waiting"), ("prefill", "p"), ("decode", "d"))
    return [
        Phase(name=name, kind=kind, start_ms=start, end_ms=end)
        for (name, kind), start, end in zip(kinds, instants, instants[1:], strict=False)
        if start is not None and end is not None and end >= start
    ]


def runs(found: Sequence[SeenDecision]) -> Sequence[DecisionEvent]:
    """Decisions alike that followed each other as one; `found` and the answer are newest first."""
    alike = (list(run) for _, run in groupby(found, key=lambda seen: seen.kind))
    return [decision_event(run[::-1]) for run in islice(alike, ROWS)]


def decision_routes(telemetry: Telemetry) -> APIRouter:
    """`/ui/decisions`."""
    router = page_router()

    @router.get("/decisions")
    async def list_decisions(request: Request, reason: ReasonName = "") -> Response:
        return await asyncio.to_thread(show, request, reason)

    def show(request: Request, reason: str) -> Response:
        kept, now_s = telemetry.decisions.snapshot(), telemetry.clock()

        def is_wanted(seen: SeenDecision) -> bool:
            return not reason or seen.record.reason == reason

        late = [seen for seen in kept if now_s - seen.at_s <= LAST_S]
        shares = Counter(str(seen.record.reason) for seen in late).most_common()
        return page(
            request,
            "decisions.html",
            title="Decisions",
            decisions=runs(newest(kept, is_wanted, LOOKED_AT)),
            shares=[(name, count / len(late)) for name, count in shares],
            last_s=LAST_S,
            total=telemetry.decisions.total,
            reason=reason,
            reasons=REASONS,
        )

    return router
