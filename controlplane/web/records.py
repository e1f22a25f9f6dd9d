"""What is on record: alarms with their beginning and end, and who changed what, when and why."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.responses import Response

from pdmuxd.controlplane.database.audit import AuditEntry
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.alarms import AlarmStore, PastAlarm
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.rendering import moment
from pdmuxd.controlplane.web.tables import Column, CsvName, Link, Table, long, when
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown

ROWS = 100
LINES, LINE = 4, 60
"""Of what was changed in a row, and characters of a line; more is folded."""
ID_MAX = 2**31 - 1
NAME_MAX = 100

Before = Annotated[int | None, Query(ge=1, le=ID_MAX, description="Only older ones.")]
Name = Annotated[str, Query(max_length=NAME_MAX, description="Only of this one.")]


def record_routes(control_plane: ControlPlane, history: History, alarms: AlarmStore) -> APIRouter:
    """`/ui/alarms` and `/ui/audit`."""
    router = page_router()

    @router.get("/alarms")
    async def list_alarms(
        request: Request,
        tenant: Name = "",
        kind: Name = "",
        at: At = None,
        window: MaybeWindow = None,
        before: Before = None,
        csv: CsvName = "",
    ) -> Response:
        asked = {"tenant": tenant, "kind": kind}
        shown = Shown.asked(at, window, time.time(), asked)
        bounds = None if shown.is_all else shown.period
        found = await history.past_alarms(
            alarms,
            tenant=tenant or None,
            kind=kind or None,
            start=None if bounds is None else instant(bounds.start_s),
            end=None if bounds is None else instant(bounds.end_s),
            before_id=before,
            limit=ROWS,
        )
        older = shown.query(before=str(found[-1].alarm_id)) if len(found) == ROWS else None
        going_on = sum(one.ended_at is None for one in found)
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            "search.html",
            title="Alarms",
            heading=f"{going_on} of these alarms {'goes' if going_on == 1 else 'go'} on"
            if going_on
            else "No alarm goes on",
            state="bad" if going_on else "good",
            shown=shown,
            asked=[("tenant", "Tenant", tenant), ("kind", "Kind", kind)],
            tables=(_alarms(found, older),),
        )

    @router.get("/audit")
    async def list_audit(
        request: Request,
        tenant: Name = "",
        who: Name = "",
        action: Name = "",
        at: At = None,
        window: MaybeWindow = None,
        before: Before = None,
        csv: CsvName = "",
    ) -> Response:
        shown = Shown.asked(at, window, time.time(), {"tenant": tenant, "who": who, "action": action})
        bounds = None if shown.is_all else shown.period
        ask = partial(
            control_plane.audit,
            before_id=before,
            limit=ROWS,
            tenant=tenant or None,
            who=who or None,
            action=action or None,
            since=None if bounds is None else instant(bounds.start_s),
            until=None if bounds is None else instant(bounds.end_s),
        )
        found = await asyncio.to_thread(ask)
        older = shown.query(before=str(found[-1].entry_id)) if len(found) == ROWS else None
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            "search.html",
            title="Audit",
            heading="Who changed what, when and why",
            shown=shown,
            asked=[("tenant", "Tenant", tenant), ("who", "Who", who), ("action", "Action", action)],
            tables=(_audit(found, older),),
        )

    return router


def _alarms(found: Sequence[PastAlarm], older: str | None) -> Table:
    return Table(
        name="alarms",
        title="Raised and ended",
        note="newest first",
        columns=(
            when("began_at", "Began"),
            Column("ended_at", "Ended", moment, unknown=Markup("<b>goes on</b>")),
            Column("ended_by", "Ended by"),
            Column("severity", "Severity", lambda text: f"{'!!' if text == 'critical' else '!'} {text}"),
            Column("kind", "Kind"),
            Column("tenant", "Tenant"),
            long("text", "What"),
        ),
        rows=[
            (
                Link(one.began_at, f"/ui/overview?at={(one.ended_at or one.raised_at):%Y-%m-%dT%H:%M:%SZ}"),
                one.ended_at,
                one.ended_by,
                one.severity,
                one.kind,
                one.tenant,
                one.text,
            )
            for one in found
        ],
        empty="No alarm was raised.",
        next_address=older,
    )


def _audit(found: Sequence[AuditEntry], older: str | None) -> Table:
    return Table(
        name="audit",
        title="Changes",
        note="newest first",
        columns=(
            when("at", "When"),
            Column("who", "Who"),
            Column("who_kind", "By"),
            Column("source", "From"),
            Column("action", "Action"),
            Column("subject", "Subject"),
            long("why", "Why"),
            Column("changed", "Changed", _shortened, "long"),
        ),
        rows=[
            (one.at, one.who, one.who_kind, one.source, one.action, one.subject, one.why or "", in_words(one))
            for one in found
        ],
        empty="Nothing was changed.",
        next_address=older,
    )


def in_words(entry: AuditEntry) -> str:
    """A line for each field that was changed."""
    return "\n".join(
        f"{field}: {f'{old} → ' if old else ''}{new or 'none'}"
        for field, old, new in changes(entry.before, entry.after)
    )


def _shortened(text: str) -> Markup:
    """The same, of which what is long is shown when it is asked for."""
    lines = text.split("\n") if text else []
    shown = Markup("<br>").join(lines)
    if len(lines) <= LINES and len(text) <= LINES * LINE:
        return shown
    return Markup("<details><summary>{} fields</summary>{}</details>").format(len(lines), shown)


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
