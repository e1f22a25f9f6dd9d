"""All pages, put together."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from pdmuxd.controlplane.api.limits import LimitUse
from pdmuxd.controlplane.api.log import EngineLog
from pdmuxd.controlplane.history.alarms import AlarmStore
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.node.engine_actions import EngineActions
from pdmuxd.controlplane.node.quarantine import QuarantineActions
from pdmuxd.controlplane.node.traffic_replays import ReplayJobs
from pdmuxd.controlplane.outlook.slo_preview import Previews
from pdmuxd.controlplane.outlook.tbt_cap_rules import KnownCosts
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.decisions import decision_routes
from pdmuxd.controlplane.web.forms import read_form, require_own_form
from pdmuxd.controlplane.web.gpu import gpu_routes
from pdmuxd.controlplane.web.incidents import incident_routes
from pdmuxd.controlplane.web.logins import LOGIN_PATH, BrowserLogins, session_of
from pdmuxd.controlplane.web.overview import Pictures, overview_routes
from pdmuxd.controlplane.web.pages import page_router
from pdmuxd.controlplane.web.partitions import partition_routes
from pdmuxd.controlplane.web.policy import policy_routes
from pdmuxd.controlplane.web.profiles import profile_routes
from pdmuxd.controlplane.web.records import record_routes
from pdmuxd.controlplane.web.rendering import ASSETS, asset
from pdmuxd.controlplane.web.replays import replay_routes
from pdmuxd.controlplane.web.reports import Reports, report_routes
from pdmuxd.controlplane.web.requests import request_routes
from pdmuxd.controlplane.web.settings import SettingsInForce, settings_routes
from pdmuxd.controlplane.web.targets import target_routes
from pdmuxd.controlplane.web.tenant import tenant_routes
from pdmuxd.controlplane.web.tenant_list import tenant_list_routes
from pdmuxd.controlplane.web.what_if import what_if_routes
from pdmuxd.engine.core.errors import NotFoundError

ASSET_PATHS = frozenset(f"/ui/assets/{name}" for name in ASSETS)
OPEN_PATHS = ASSET_PATHS | {LOGIN_PATH}
"""Without a login: the page to log in at, and what it looks like."""
_A_YEAR = "public, max-age=31536000, immutable"


def add_pages(
    app: FastAPI,
    logins: BrowserLogins,
    *,
    control_plane: ControlPlane,
    telemetry: Telemetry,
    history: History,
    previews: Previews,
    limit_use: LimitUse,
    predictors: Predictors,
    known_costs: KnownCosts,
    actions: EngineActions,
    quarantine: QuarantineActions,
    replays: ReplayJobs,
    engine_log: EngineLog,
    settings: SettingsInForce,
    reports: Reports,
) -> None:
    """Add every page to the admin plane's application."""
    app.add_api_route(LOGIN_PATH, logins.show, methods=["GET"], include_in_schema=False, response_model=None)
    app.add_api_route(
        LOGIN_PATH, logins.log_in, methods=["POST"], include_in_schema=False, response_model=None
    )
    for path in ASSET_PATHS:
        app.add_api_route(path, _send_asset, include_in_schema=False)
    alarms, pictures = AlarmStore(control_plane.store), Pictures(history)
    for routes in (
        overview_routes(telemetry, history, alarms, pictures),
        tenant_list_routes(telemetry, history),
        tenant_routes(control_plane, telemetry, history, limit_use),
        target_routes(control_plane, previews),
        request_routes(control_plane, telemetry, history),
        decision_routes(telemetry, history),
        partition_routes(control_plane, telemetry, history, pictures),
        gpu_routes(control_plane, telemetry, history, pictures, actions, quarantine, engine_log),
        profile_routes(control_plane, telemetry, history),
        policy_routes(control_plane, telemetry, history, predictors),
        what_if_routes(telemetry, predictors, known_costs),
        replay_routes(control_plane, replays, predictors, reports),
        report_routes(reports),
        record_routes(control_plane, history, alarms),
        incident_routes(telemetry, history, IncidentStore(control_plane.store)),
        settings_routes(control_plane, telemetry, history, settings),
        _own_routes(logins),
    ):
        # As they are: included, the framework would wrap them, and hide what rule each has.
        app.router.routes.extend(routes.routes)


async def _send_asset(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    headers = {"Cache-Control": _A_YEAR, "X-Content-Type-Options": "nosniff"}
    return Response(asset(name), media_type=ASSETS[name], headers=headers)


def _own_routes(logins: BrowserLogins) -> APIRouter:
    """The end of a login, and what is not there. They come last."""
    router = page_router()

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        require_own_form(request, await read_form(request), session_of(request))
        return await logins.log_out(request)

    @router.get("/{path:path}")
    async def miss(path: str) -> Response:
        raise NotFoundError(f"there is no page /ui/{path[:80]}")

    return router
