"""Settings in force: the daemon's own with where each was written, and what operators have set since."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.past import happened
from pdmuxd.controlplane.web.tables import Column, CsvName, Table, long
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown

PATH = "(a path)"
"""What a reader sees in place of one: where things lie on the machine is of use to who may change them."""
_PATH = re.compile(r"""(?:(?<=:)/{3,}|(?<![\w:/.])(?:\.{0,2}/|~))[^\s'",\]]*""")
"""From the root, the home or where it was started, behind `sqlite:` too; no `https://`, no `owner/model`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce:
    """One key. A secret is masked already."""

    value: object
    origin: str
    """Such as `default`, or the file or variable that has it."""
    description: str
    waits: str = ""
    """What was read since, and what it takes to be in force; empty if nothing."""


Settings = Mapping[str, SettingInForce]
SettingsInForce = Callable[[], Settings]
"""By dotted key; read again at each call, since a reload changes some."""


def settings_routes(
    control_plane: ControlPlane, telemetry: Telemetry, history: History, in_force: SettingsInForce
) -> APIRouter:
    """`/ui/settings`."""
    router = page_router()

    @router.get("/settings")
    async def show_settings(
        request: Request, at: At = None, window: MaybeWindow = None, csv: CsvName = ""
    ) -> Response:
        shown = Shown.now_unless(at, window, time.time())
        if shown.is_all:
            return await asyncio.to_thread(show_now, request, shown, csv)
        seen = await happened(history, shown, "tenant", "slo", "policy", "profile")
        return await asyncio.to_thread(show_past, request, shown, csv, seen)

    def show_past(request: Request, shown: Shown, csv: str, seen: Table) -> Response:
        latest = control_plane.audit(until=shown.end, limit=1)
        version = latest[0].settings_version if latest else 0
        return sheet(
            request,
            csv,
            title="Settings",
            heading=f"Settings version {version} was the newest at the end of this time.",
            lines=(
                "Who changed what to what is in the audit of the same time. "
                "The daemon's own keys are told of now alone.",
            ),
            shown=shown,
            tables=(seen,),
        )

    def show_now(request: Request, shown: Shown, csv: str) -> Response:
        status, version = telemetry.status(), control_plane.directory.version
        waits = status.acked_version < version
        engine = f"the engine at {status.acked_version}" if waits else "so is the engine"
        return sheet(
            request,
            csv,
            title="Settings",
            heading="Settings in force",
            lines=(
                f"Tenants, targets and policy are at settings version {version}, and {engine}.",
                "The keys below are of the daemon: pdmuxd.toml, variables and flags. "
                "pdmuxd reload reads them again.",
            ),
            state="bad" if waits else "good",
            shown=shown,
            tables=(_table(in_force(), shows_paths=caller_of(request.scope).role == "admin"),),
        )

    return router


def _table(settings: Settings, *, shows_paths: bool) -> Table:
    said: Callable[[object], object] = (lambda value: value) if shows_paths else _without_paths
    return Table(
        name="settings",
        title="Of the daemon",
        note="a password is not shown" if shows_paths else "passwords are not shown, paths to operators only",
        columns=(
            Column("key", "Key"),
            Column("value", "Value", _shown, "long"),
            Column("origin", "Where it is from"),
            long("description", "What it is"),
            Column("waits", "Waits"),
        ),
        rows=[
            (key, said(one.value), said(one.origin), one.description, said(one.waits))
            for key, one in settings.items()
        ],
        empty="No daemon runs here.",
    )


def _without_paths(value: object) -> object:
    """The same with PATH in place of each path; numbers and truth values stay what they are."""
    return value if value is None or isinstance(value, bool | int | float) else _PATH.sub(PATH, str(value))


def _shown(value: object) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
