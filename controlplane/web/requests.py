"""Requests: the latest, those of a time that is over, and one request's life on a time line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from markupsafe import Markup, escape
from starlette.responses import Response

from pdmuxd.controlplane.api.decisions import decided_meanwhile
from pdmuxd.controlplane.api.history import since_of
from pdmuxd.controlplane.events.messages import RequestEvent, instant
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry import serializers
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.tenant_fields import NAME_MAX
from pdmuxd.controlplane.web.pages import page, page_router, sheet
from pdmuxd.controlplane.web.tables import Column, CsvName, Link, Table, count, ms, when, yes_no
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown, Window
from pdmuxd.engine.core.errors import NotFoundError
from pdmuxd.tui.show.words import REASONS, cause_in_words

ROWS = 100
LEDGER_ROWS = 200
"""Of a past time, on one page."""
_ID_MAX = 2**63 - 1

Tenant = Annotated[str, Query(max_length=NAME_MAX, description="Only of this tenant.")]
Which = Literal["ended", "missed", "in_flight"]
After = Annotated[int, Query(ge=0, le=_ID_MAX, description="Only those behind this one.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a request's life, in milliseconds since its arrival."""

    name: str
    kind: str
    start_ms: float
    end_ms: float


def request_routes(control_plane: ControlPlane, telemetry: Telemetry, history: History) -> APIRouter:
    """`/ui/requests`, `/ui/requests/{request_id}` and `/ui/tenants/{name}/requests`."""
    router = page_router()

    @router.get("/requests")
    async def list_requests(
        request: Request,
        which: Which = "ended",
        tenant: Tenant = "",
        at: At = None,
        window: MaybeWindow = None,
        after: After = 0,
        csv: CsvName = "",
    ) -> Response:
        asked = {"tenant": tenant, "which": "" if which == "ended" else which}
        shown = Shown.asked(at, window, time.time(), asked)
        if shown.is_all:
            return await asyncio.to_thread(show_kept, request, csv, shown, which, tenant)
        ledger = await _ledger(history, shown, tenant or None, None, after)
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            "requests.html",
            title="Requests",
            heading="Requests that ended",
            lines=("From the ledger, in the order in which they ended; the newest are told in more detail.",),
            shown=shown,
            asked=[("tenant", "Tenant", tenant)],
            tables=(ledger,),
            which=which,
        )

    @router.get("/tenants/{name}/requests")
    async def list_own_requests(
        request: Request,
        name: str,
        at: At = None,
        window: Window = "30m",
        after: After = 0,
        csv: CsvName = "",
    ) -> Response:
        since_ms = since_of(control_plane, name)
        shown = Shown.of(at, window, time.time())
        ledger = await _ledger(history, shown, name, since_ms, after)
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            title=f"Requests of {name}",
            lines=("From the ledger, in the order in which they ended.",),
            shown=shown,
            tables=(ledger,),
        )

    def show_kept(request: Request, csv: str, shown: Shown, which: Which, tenant: str) -> Response:
        known = telemetry.requests
        lifecycles = known.in_flight() if which == "in_flight" else known.ended()

        def is_wanted(one: RequestLifecycle) -> bool:
            return (not tenant or one.tenant == tenant) and (which != "missed" or bool(one.violations))

        # Only those that are shown are put into words: thousands are kept.
        wanted = islice((one for one in reversed(lifecycles) if is_wanted(one)), ROWS)
        found = [serializers.request(one) for one in wanted]
        return sheet(
            request,
            csv,
            "requests.html",
            title="Requests",
            lines=(f"The last {known.kept} that ended are kept with all that is known of them.",),
            shown=shown,
            asked=[("tenant", "Tenant", tenant)],
            tables=(_newest(found),),
            which=which,
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


async def _ledger(
    history: History, shown: Shown, tenant: str | None, since_ms: int | None, after: int
) -> Table:
    await history.flush()
    found = await asyncio.to_thread(
        history.ledger.list,
        start_s=int(shown.period.start_s),
        end_s=int(shown.period.end_s) + 1,
        tenant=tenant,
        since_ms=since_ms,
        key_id=None,
        after_id=after,
        limit=LEDGER_ROWS,
    )
    return Table(
        name="ledger",
        title="Every request that ended",
        columns=(
            Column("request_id", "Request", _short),
            when("at", "Ended"),
            Column("tenant", "Tenant"),
            Column("key_id", "Key"),
            Column("outcome", "Outcome"),
            Column("status", "HTTP"),
            yes_no("good", "In time"),
            count("prefill_tokens", "Prompt tokens"),
            count("cached_tokens", "Cached"),
            count("output_tokens", "Output tokens"),
            ms("ttft_ms", "TTFT, ms"),
            ms("duration_ms", "Took, ms"),
        ),
        rows=[
            (
                one.request_id,
                instant(one.at),
                one.tenant,
                one.key_id,
                one.outcome,
                one.status,
                one.is_good,
                one.input_tokens,
                one.cached_tokens,
                one.output_tokens,
                one.ttft_ms,
                one.duration_ms,
            )
            for _, one in found
        ],
        empty="No request ended in this time.",
        next_address=shown.query(after=str(found[-1][0])) if len(found) == LEDGER_ROWS else None,
        next_text="Later",
    )


def _short(request_id: str) -> Markup:
    return Markup(f'<code title="{escape(request_id)}">{escape(request_id[:8])}</code>')  # noqa: S704


def _newest(found: Sequence[RequestEvent]) -> Table:
    return Table(
        name="requests",
        title=f"The newest {len(found)}",
        columns=(
            Column("request_id", "Request", _short),
            Column("tenant", "Tenant"),
            when("arrived_at", "Arrived"),
            Column("outcome", "Outcome"),
            count("prefill_tokens", "Prompt tokens"),
            count("output_tokens", "Output tokens"),
            ms("queue_ms", "Waited, ms"),
            ms("ttft_ms", "TTFT, ms"),
            ms("ttft_target_ms", "TTFT target, ms"),
            ms("tbt_max_ms", "Longest gap, ms"),
            ms("tbt_target_ms", "TBT target, ms"),
            ms("e2e_ms", "Whole, ms"),
            ms("e2e_target_ms", "Whole target, ms"),
            Column("missed", "Targets", _judged, "long", ""),
        ),
        rows=[
            (
                Link(one.request_id, f"/ui/requests/{one.request_id}"),
                Link(one.tenant, f"/ui/tenants/{one.tenant}"),
                one.arrived_at,
                one.outcome or one.state.replace("_", " "),
                one.new_tokens,
                one.output_tokens,
                one.queue_ms,
                one.ttft_ms,
                one.ttft_target_ms,
                one.tbt_max_ms,
                one.tbt_target_ms,
                one.e2e_ms,
                one.e2e_target_ms,
                "; ".join(f"{miss.target.upper()}: {cause_in_words(miss.cause)}" for miss in one.missed)
                if one.missed or one.state == "ended"
                else None,
            )
            for one in found
        ],
        empty="There is none.",
    )


def _judged(missed: str) -> Markup:
    sign, words = ("bad", f"! {missed}") if missed else ("good", "✓ in time")
    return Markup(f'<span class="{sign}">{escape(words)}</span>')  # noqa: S704


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
