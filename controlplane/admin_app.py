"""Puts the admin plane together: REST, its documentation, and the pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.security import HTTPBearer

from pdmuxd.controlplane.api.access import PREFIX
from pdmuxd.controlplane.api.actions import action_routes
from pdmuxd.controlplane.api.admin_tokens import admin_token_routes
from pdmuxd.controlplane.api.attainment import attainment_routes
from pdmuxd.controlplane.api.audit import audit_routes
from pdmuxd.controlplane.api.auth import (
    METRICS_PATH,
    PUBLIC_PATHS,
    WHY_PARAMETER,
    AdminAuth,
    Authenticator,
)
from pdmuxd.controlplane.api.browser import add_browser_pages
from pdmuxd.controlplane.api.config import config_routes
from pdmuxd.controlplane.api.config_bodies import add_schema
from pdmuxd.controlplane.api.daemon import daemon_routes
from pdmuxd.controlplane.api.decisions import decision_routes
from pdmuxd.controlplane.api.effects import effect_routes
from pdmuxd.controlplane.api.engine import engine_routes
from pdmuxd.controlplane.api.events import event_routes
from pdmuxd.controlplane.api.field_meanings import describe
from pdmuxd.controlplane.api.history import history_routes
from pdmuxd.controlplane.api.idempotency import PARAMETER as IDEMPOTENCY_PARAMETER
from pdmuxd.controlplane.api.idempotency import IdempotentAnswers
from pdmuxd.controlplane.api.incidents import incident_routes
from pdmuxd.controlplane.api.keys import key_routes
from pdmuxd.controlplane.api.ledger import ledger_routes
from pdmuxd.controlplane.api.limits import LimitUse, NothingCounts, limit_routes
from pdmuxd.controlplane.api.log import EngineLog, log_routes
from pdmuxd.controlplane.api.partitions import partition_routes
from pdmuxd.controlplane.api.policy import policy_routes
from pdmuxd.controlplane.api.prices import price_routes
from pdmuxd.controlplane.api.problems import Problem, add_problem_handlers, documented
from pdmuxd.controlplane.api.profiles import profile_routes
from pdmuxd.controlplane.api.quarantine import quarantine_routes
from pdmuxd.controlplane.api.replays import replay_routes
from pdmuxd.controlplane.api.slos import slo_routes
from pdmuxd.controlplane.api.tenant_put import tenant_put_routes
from pdmuxd.controlplane.api.tenants import tenant_routes
from pdmuxd.controlplane.api.usage import usage_routes
from pdmuxd.controlplane.api.what_if import what_if_routes
from pdmuxd.controlplane.api.whoami import whoami_routes
from pdmuxd.controlplane.database.callers import FILE_TOKEN, Caller
from pdmuxd.controlplane.history.alarms import AlarmStore
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.node.daemon_actions import DaemonActions, NoDaemon
from pdmuxd.controlplane.node.engine_actions import EngineActions, NoEngine
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.node.quarantine import NothingHeld, QuarantineActions
from pdmuxd.controlplane.node.traffic_replays import NoReplays, ReplayJobs
from pdmuxd.controlplane.outlook.slo_preview import Previews
from pdmuxd.controlplane.outlook.tbt_cap_rules import KnownCosts
from pdmuxd.controlplane.outlook.tbt_costs import tbt_costs
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.login_audit import LoginAudit
from pdmuxd.controlplane.web.logins import BrowserLogins
from pdmuxd.controlplane.web.proxy import ProxyLogins, TrustedProxy
from pdmuxd.controlplane.web.reports import Reports
from pdmuxd.controlplane.web.routes import OPEN_PATHS, add_pages
from pdmuxd.controlplane.web.sessions import Sessions
from pdmuxd.controlplane.web.settings import SettingsInForce

DESCRIPTION = "Tenants, their API keys and latency targets, and the engine that keeps them."


def build_admin_app(
    control_plane: ControlPlane,
    *,
    engine_status: Callable[[], EngineStatus],
    admin_token_sha256: str,
    reader_token_sha256: Callable[[], str | None] = lambda: None,
    owner: Caller = FILE_TOKEN,
    used: Callable[[Caller], None] = lambda _: None,
    telemetry: Telemetry | None = None,
    history: History | None = None,
    predictors: Predictors = lambda: None,
    known_costs: KnownCosts | None = None,
    actions: EngineActions | None = None,
    quarantine: QuarantineActions | None = None,
    replays: ReplayJobs | None = None,
    daemon_actions: DaemonActions | None = None,
    engine_log: Path | None = None,
    limit_use: LimitUse | None = None,
    extra_routes: Callable[[FastAPI], None] | None = None,
    metrics_need_token: bool = False,
    settings: SettingsInForce = dict,
    reports: Path | None = None,
    proxy: TrustedProxy | None = None,
) -> FastAPI:
    """Build the admin plane's ASGI application.

    `engine_status` is called from worker threads. Without `telemetry` and `actions` no daemon runs: nothing
    happens and nothing can be done. `predictors` answer what-if questions. `extra_routes` adds what only the
    daemon can answer; of its paths, `/healthz` and `/readyz` are open, and
    `/metrics` unless `metrics_need_token`. All others need a token or
    key: the one of `admin_token_sha256` (hexadecimal), which is `owner`'s, the reader token, or one of the
    control plane's, whose uses are told to `used`. What each may do is in `access.RULES`. `reports` is the
    folder of the reports that pages show.
    """
    app = FastAPI(
        title="pdmuxd",
        version=version("pdmuxd"),
        description=DESCRIPTION,
        openapi_url=None,  # `add_browser_pages` sends it
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        # A generated client's methods are called as the routes are here: list_tenants, set_slo.
        generate_unique_id_function=lambda route: route.name,
    )
    authenticator = Authenticator(
        token_sha256=admin_token_sha256,
        directory=lambda: control_plane.directory,
        reader_sha256=reader_token_sha256,
        owner=owner,
        used=used,
    )
    public = PUBLIC_PATHS - {METRICS_PATH} if metrics_need_token else PUBLIC_PATHS
    logins = BrowserLogins(
        authenticator,
        Sessions(now_s=time.monotonic),
        LoginAudit(control_plane, now_s=time.monotonic),
        ProxyLogins(proxy),
    )
    app.add_middleware(AdminAuth, authenticator=authenticator, logins=logins, public=public | OPEN_PATHS)
    telemetry = telemetry or Telemetry(clock=time.time)
    history = history or History(telemetry.recorder, control_plane.store)
    previews = Previews(telemetry, predictors)
    limit_use = limit_use or NothingCounts()
    app.state.idempotent_answers = IdempotentAnswers(now_s=time.monotonic)
    costs = known_costs or partial(tbt_costs, telemetry, predictors)
    actions, quarantine = actions or NoEngine(), quarantine or NothingHeld()
    replays = replays or NoReplays()
    log = EngineLog(engine_log)
    add_problem_handlers(app)
    add_browser_pages(app)
    if extra_routes is not None:
        extra_routes(app)
    # The middleware asks for the token; this only tells OpenAPI so.
    token = HTTPBearer(auto_error=False, scheme_name="admin_token", description="the file admin.token_file")
    api = APIRouter(prefix=PREFIX, dependencies=[Depends(token)])
    for routes in (
        tenant_routes(control_plane, engine_status),
        key_routes(control_plane),
        admin_token_routes(control_plane),
        audit_routes(control_plane),
        slo_routes(control_plane, engine_status, previews),
        limit_routes(control_plane, limit_use),
        tenant_put_routes(control_plane, engine_status, previews),
        config_routes(control_plane, telemetry, predictors),
        engine_routes(control_plane, engine_status),
        policy_routes(control_plane, engine_status, predictors),
        profile_routes(control_plane, engine_status),
        event_routes(telemetry),
        decision_routes(telemetry),
        attainment_routes(telemetry),
        history_routes(history, AlarmStore(control_plane.store), control_plane),
        incident_routes(telemetry, history, IncidentStore(control_plane.store)),
        effect_routes(telemetry),
        price_routes(control_plane),
        usage_routes(history, control_plane),
        ledger_routes(history, control_plane),
        partition_routes(telemetry),
        what_if_routes(telemetry, predictors, costs),
        replay_routes(replays, predictors),
        action_routes(actions, control_plane),
        quarantine_routes(quarantine, control_plane),
        daemon_routes(daemon_actions or NoDaemon(), control_plane),
        log_routes(log),
        whoami_routes(),
    ):
        api.include_router(routes)
    app.include_router(api)
    add_pages(
        app,
        logins,
        control_plane=control_plane,
        telemetry=telemetry,
        history=history,
        previews=previews,
        limit_use=limit_use,
        predictors=predictors,
        known_costs=costs,
        actions=actions,
        quarantine=quarantine,
        replays=replays,
        engine_log=log,
        settings=settings,
        reports=Reports(reports),
    )
    _complete_document(app)
    return app


def prepare_routes(app: FastAPI) -> None:
    """Have the frameworks do now what they would at the first call, while streams wait for the loop.

    FastAPI puts its routes together (0.24 s of processor time, 2026-11-26). anyio, by which calls get their
    worker threads, imports what it has for asyncio (0.1 s).
    """
    import_module("anyio._backends._asyncio")
    scope = {"type": "http", "method": "GET", "path": f"{PREFIX}/-", "root_path": "", "headers": []}
    for route in app.router.routes:
        route.matches(scope)


def _complete_document(app: FastAPI) -> None:
    """Say in the OpenAPI document what the framework does not know.

    Problem is no route's own answer; probes are guarded as all paths are; a parameter that may be left out is
    not therefore null, which no query or header can be; and every call that changes something may say why.
    """
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = build()
        document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        add_schema(document)
        everywhere = {str(status): response for status, response in documented().items()}
        describe(document)
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if not path.startswith(PREFIX):
                    operation["responses"] = everywhere | operation["responses"]
                for parameter in operation.get("parameters", ()):
                    _without_null(parameter["schema"])
                if path.startswith(PREFIX) and method not in ("get", "head"):
                    added = [WHY_PARAMETER, *([IDEMPOTENCY_PARAMETER] if method == "post" else [])]
                    operation.setdefault("parameters", []).extend(added)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _without_null(schema: dict[str, Any]) -> None:
    kept = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(kept) == 1:
        del schema["anyOf"]
        schema.update(kept[0])
