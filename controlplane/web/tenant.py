"""One tenant: its targets, what was kept of them, budgets, limits, use, misses by cause, keys, history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request
from starlette.responses import Response

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.history import since_of
from pdmuxd.controlplane.api.limits import LimitUse
from pdmuxd.controlplane.api.slos import SloOut, has_reached
from pdmuxd.controlplane.history.columns import Column, empty, merge
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.attainment import WINDOWS_S, Attainment, ViolationCounts
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN
from pdmuxd.controlplane.tenants.api_keys import ApiKey
from pdmuxd.controlplane.tenants.limit_values import WHAT, Limit
from pdmuxd.controlplane.tenants.tenants import Tenant
from pdmuxd.controlplane.web.live import row_of
from pdmuxd.controlplane.web.overview import MARKS
from pdmuxd.controlplane.web.pages import page, page_router
from pdmuxd.controlplane.web.pictures import picture
from pdmuxd.controlplane.web.tables import CsvName, Table, csv_of, plain_table
from pdmuxd.controlplane.web.tenant_list import loads
from pdmuxd.controlplane.web.times import At, Shown, Window
from pdmuxd.controlplane.web.verdicts import causes
from pdmuxd.tui.show.words import LABELS, cause_in_words

REVISIONS = 20
"""Of the targets; the newest."""
WINDOW_NAMES = dict(zip(WINDOWS_S, ("1 min", "5 min", "1 h", "24 h", "30 d"), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One target over one window."""

    target: str
    window: str
    judged: int
    missed: int
    met_ratio: float | None
    burn: float | None


def tenant_routes(
    control_plane: ControlPlane, telemetry: Telemetry, history: History, limit_use: LimitUse
) -> APIRouter:
    """`/ui/tenants/{name}`."""
    router = page_router()

    @router.get("/tenants/{name}")
    async def show_tenant(
        request: Request, name: str, at: At = None, window: Window = "30m", csv: CsvName = ""
    ) -> Response:
        since_ms = since_of(control_plane, name)
        shown = Shown.of(at, window, time.time())
        record = telemetry.directory.tenants.get(name)
        points = await history.read(name, since_ms, shown.minutes)
        marks = await history.marks(shown.minutes, tenant=name, since_ms=since_ms)
        tenant = await asyncio.to_thread(control_plane.get_tenant, name)
        sums = empty()
        for _, row in points:
            merge(sums, row)
        drawn = await asyncio.to_thread(picture, shown.minutes, points, marks[-MARKS:])
        found = kept(telemetry, tenant), _causes(telemetry, name), _limits(tenant, limit_use)
        keys = await asyncio.to_thread(control_plane.keys.list, name)
        revisions = await asyncio.to_thread(_revisions, control_plane, telemetry, name)
        if csv:
            return csv_of(_tables(*found, keys, revisions, shown.now), csv, file=name)
        attained, misses, limits = found
        now = await loads(telemetry, [record]) if record is not None and shown.is_live else []
        return await asyncio.to_thread(
            page,
            request,
            "tenant.html",
            title=name,
            tenant=tenant,
            shown=shown,
            now=row_of(now[0]) if now else None,
            kept=attained,
            causes=misses,
            picture=drawn,
            used={column.name.lower(): sums[column] for column in Column},
            limits=[(one, WHAT[one.name], used) for one, used in limits],
            keys=keys,
            revisions=revisions,
            may_edit=caller_of(request.scope).role == "admin",
        )

    return router


def _tables(
    attained: Sequence[Kept],
    misses: Sequence[tuple[str, str, int]],
    limits: Sequence[tuple[Limit, int | None]],
    keys: Sequence[ApiKey],
    revisions: Sequence[SloOut],
    now: datetime,
) -> Sequence[Table]:
    of_key = ("key_id", "label", "state", "scopes", "last4", "created_at", "last_used_at", "expires_at")
    of_slo = ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "tbt_ms", "e2e_ms", "attainment_ratio")
    return (
        plain_table("misses", ("target", "cause", "requests"), misses),
        plain_table(
            "attainment",
            ("window", "target", "met_ratio", "judged", "missed", "burn"),
            [(one.window, one.target, one.met_ratio, one.judged, one.missed, one.burn) for one in attained],
        ),
        plain_table(
            "limits",
            ("name", "value", "action", "used"),
            [(limit.name, limit.value, limit.action, used) for limit, used in limits],
        ),
        plain_table(
            "keys",
            of_key,
            [
                (
                    *(key.key_id, key.label, key.state(now), " ".join(key.scopes), key.last4),
                    *(key.created_at, key.last_used_at, key.expires_at),
                )
                for key in keys
            ],
        ),
        plain_table(
            "targets",
            ("version", "in_force", "created_at", *of_slo),
            [
                (one.version, one.in_force, one.created_at, *(getattr(one, name) for name in of_slo))
                for one in revisions
            ],
        ),
    )


def kept(telemetry: Telemetry, tenant: Tenant) -> Sequence[Kept]:
    """What was kept of both targets, over every window."""
    now_s = telemetry.clock()
    attainment = telemetry.tenants.get(tenant.name) or Attainment()
    waiting = telemetry.open_lately(now_s).get(tenant.name, NOTHING_OPEN)
    promised = tenant.revision.slo.attainment_ratio
    return [
        _kept(target, window, counts, promised)
        for window_s, window in WINDOW_NAMES.items()
        for target, counts in zip(
            LABELS.values(), attainment.violations(now_s, window_s, waiting), strict=True
        )
        if counts.judged or target != LABELS["e2e"] or tenant.revision.slo.e2e_s is not None
    ]


def _kept(target: str, window: str, counts: ViolationCounts, promised: float) -> Kept:
    return Kept(
        target=target,
        window=window,
        judged=counts.judged,
        missed=counts.missed,
        met_ratio=counts.attainment_ratio,
        burn=counts.burn(promised),
    )


def _causes(telemetry: Telemetry, name: str) -> Sequence[tuple[str, str, int]]:
    """(target, cause in words, requests) of the last five minutes, the most frequent first."""
    ended, now_s = telemetry.requests.ended(), telemetry.clock()
    return [
        (label, cause_in_words(cause), count)
        for target, label in LABELS.items()
        for cause, count in causes(ended, now_s, tenant=name, target=target).most_common()
    ]


def _limits(tenant: Tenant, limit_use: LimitUse) -> Sequence[tuple[Limit, int | None]]:
    used = limit_use.of_tenant(tenant.name) or {}
    return [(limit, used.get(limit.name)) for limit in tenant.limits]


def _revisions(control_plane: ControlPlane, telemetry: Telemetry, name: str) -> Sequence[SloOut]:
    """The newest targets, newest first; one of them at most is in force."""
    found, status = control_plane.list_slo_history(name, REVISIONS), telemetry.status()
    working = next((one for one in found if has_reached(one, status)), None)
    return [SloOut.of(one, in_force=one is working) for one in found]
