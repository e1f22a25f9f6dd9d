"""What is on record: alarms with their beginning and end, and who changed what, when and why."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pdmuxd.controlplane.history.alarms import AlarmStore
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.pages import page, page_router

ROWS = 100
ID_MAX = 2**31 - 1
NAME_MAX = 100

Before = Annotated[int | None, Query(ge=1, le=ID_MAX, description="Only older ones.")]
Name = Annotated[str, Query(max_length=NAME_MAX, description="Only of this one.")]


def record_routes(control_plane: ControlPlane, history: History, alarms: AlarmStore) -> APIRouter:
    """`/ui/alarms` and `/ui/audit`."""
    router = page_router()

    @router.get("/alarms")
    async def list_alarms(request: Request, tenant: Name = "", before: Before = None) -> Response:
        found = await history.past_alarms(alarms, tenant=tenant or None, before_id=before, limit=ROWS)
        return await asyncio.to_thread(
            page,
            request,
            "alarms.html",
            title="Alarms",
            alarms=found,
            tenant=tenant,
            next_before=found[-1].alarm_id if len(found) == ROWS else None,
        )

    @router.get("/audit")
    async def list_audit(
        request: Request, tenant: Name = "", who: Name = "", action: Name = "", before: Before = None
    ) -> Response:
        wanted = {"tenant": tenant or None, "who": who or None, "action": action or None}
        ask = partial(
            control_plane.audit,
            before_id=before,
            limit=ROWS,
            tenant=wanted["tenant"],
            who=wanted["who"],
            action=wanted["action"],
        )
        found = await asyncio.to_thread(ask)
        return await asyncio.to_thread(
            page,
            request,
            "audit.html",
            title="Audit",
            entries=[(entry, changes(entry.before, entry.after)) for entry in found],
            asked={name: value or "" for name, value in wanted.items()},
            next_before=found[-1].entry_id if len(found) == ROWS else None,
        )

    return router


def changes(before: object, after: object) -> list[tuple[str, str, str]]:
    """(field, before, after) of what differs; a field that was not there, or is no more, is empty."""
    old = before if isinstance(before, dict) else {}
    new = after if isinstance(after, dict) else {}
    return [
        (name, _text(old.get(name)), _text(new.get(name)))
        for name in (*old, *(name for name in new if name not in old))
        if old.get(name) != new.get(name)
    ]


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
