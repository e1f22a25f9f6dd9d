"""The engine and its GPU: its state, what it counted, who is held, its log; and what stops and starts it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import msgspec
from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import RedirectResponse, Response

from pdmuxd.controlplane.api.actions import record_done
from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.engine import EngineStatsOut
from pdmuxd.controlplane.api.log import EngineLog
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.node.engine_actions import Action, Done, EngineActions
from pdmuxd.controlplane.node.quarantine import QuarantineActions
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry import serializers
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.forms import acting_with, read_form, require_own_form
from pdmuxd.controlplane.web.logins import session_of
from pdmuxd.controlplane.web.overview import Pictures
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.past import happened, sm_times
from pdmuxd.controlplane.web.tables import Column, CsvName, Table, long, when
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown
from pdmuxd.engine.core.errors import InvalidValueError

LOG_LINES = 100
ACTIONS = {
    "drain": "Refuse new requests; those in flight finish",
    "resume": "Take new requests again",
    "restart": "Let those in flight finish, and start the engine anew",
    "start": "Start an engine that is down, now",
}
ActionName = Annotated[str, PathParameter(max_length=20)]


def gpu_routes(
    control_plane: ControlPlane,
    telemetry: Telemetry,
    history: History,
    pictures: Pictures,
    actions: EngineActions,
    quarantine: QuarantineActions,
    log: EngineLog,
) -> APIRouter:
    """`/ui/gpu` and what its buttons do."""
    router = page_router()

    @router.get("/gpu")
    async def show_gpu(
        request: Request, at: At = None, window: MaybeWindow = None, csv: CsvName = ""
    ) -> Response:
        shown = Shown.now_unless(at, window, time.time())
        if shown.is_all:
            # In the event loop, as what is held belongs to it.
            return await asyncio.to_thread(show, request, shown, csv, _held(quarantine))
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            title="GPU",
            heading="The engine, as it was",
            lines=("Its counters, its log and who was held back are told of now alone.",),
            shown=shown,
            picture=await pictures.of(shown),
            tables=(await happened(history, shown, "engine"), await sm_times(history, shown)),
        )

    @router.post("/gpu/{action}")
    async def act(request: Request, action: ActionName) -> Response:
        sent = await read_form(request)
        require_own_form(request, sent, session_of(request))
        if action not in get_args(Action):
            allowed = ", ".join(get_args(Action))
            raise InvalidValueError("action", f"action is {action!a}; allowed are {allowed}")
        if sent.get("sure") != "yes":
            raise InvalidValueError("sure", f"the box beside {action} was not ticked: nothing was done")
        with acting_with(request, sent):
            done = _do(actions, action)
            if done.changed:
                await asyncio.to_thread(record_done, control_plane, done)
        return RedirectResponse("/ui/gpu", 303)

    def show(request: Request, shown: Shown, csv: str, held: Table) -> Response:
        status = telemetry.status()
        engine = serializers.engine(status, telemetry.clock(), reason=None)
        return sheet(
            request,
            csv,
            "gpu.html",
            title="GPU",
            shown=shown,
            tables=(_counters(telemetry), held),
            engine=engine,
            log=log.tail(LOG_LINES),
            actions=ACTIONS if caller_of(request.scope).role == "admin" else {},
        )

    return router


def _do(actions: EngineActions, action: str) -> Done:
    if action == "restart":
        return actions.restart(at_once=False)
    return {"drain": actions.drain, "resume": actions.resume, "start": actions.start}[action]()


def _counters(telemetry: Telemetry) -> Table:
    stats = telemetry.status().stats
    found = {} if stats is None else EngineStatsOut.model_validate(msgspec.to_builtins(stats)).model_dump()
    # Of those that wait, whom the policy does not see: a row for each reason.
    found |= {f"hidden_{reason}": count for reason, count in found.pop("hidden", {}).items()}
    return Table(
        name="heartbeat",
        title="Its last heartbeat",
        note="counters since it started",
        columns=(
            Column("name", "What", lambda name: name.replace("_", " ")),
            Column("value", "Value", _shown, "n"),
        ),
        rows=list(found.items()),
        empty="No engine has sent one.",
    )


def _shown(value: float) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _held(quarantine: QuarantineActions) -> Table:
    now = datetime.now(UTC)
    return Table(
        name="quarantine",
        title="Held back",
        note="it was in flight when engines ended, and gets 403 until it is released",
        columns=(
            Column("tenant", "Tenant"),
            Column("body", "Body", lambda body: body or "all of the tenant's"),
            long("request_ids", "Requests"),
            when("until", "Until"),
        ),
        rows=[
            (one.tenant, one.body or "", " ".join(one.request_ids), now + timedelta(seconds=one.left_s))
            for one in quarantine.held()
        ],
        empty="Nothing is held back.",
    )
