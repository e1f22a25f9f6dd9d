"""The last stage: the admin plane, which serves operators and Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pdmuxd.controlplane.admin_app import build_admin_app, prepare_routes
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.web.proxy import TrustedProxy
from pdmuxd.daemon.building.data_plane import DataPlane, body_limits, engine_times
from pdmuxd.daemon.building.learning import Learning
from pdmuxd.daemon.building.node import Node, engine_plan
from pdmuxd.daemon.duties.own_health import degraded
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.daemon.process.logging import configure_logging
from pdmuxd.daemon.serving.actions import OperatorActions
from pdmuxd.daemon.serving.lifecycle import GivePlace, Lifecycle
from pdmuxd.daemon.serving.probes import add_probes
from pdmuxd.daemon.serving.reader_token import ReaderToken
from pdmuxd.daemon.settings import LoadedSettings, Settings
from pdmuxd.daemon.settings.places import REPORTS
from pdmuxd.daemon.supervisor.choice import choose_engine
from pdmuxd.daemon.supervisor.supervisor import Supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlane:
    """Nothing of it runs yet."""

    app: Callable[..., Any]
    """Guarded."""
    actions: OperatorActions
    lifecycle: Lifecycle


def build_admin_plane(
    loaded: LoadedSettings,
    control_plane: ControlPlane,
    node: Node,
    data: DataPlane,
    learning: Learning,
    *,
    admin_token: str,
    reread: Callable[[], LoadedSettings] | None,
    give_place: GivePlace | None,
) -> AdminPlane:
    """Build what shows all the other stages and acts on them."""
    settings, supervisor = loaded.settings, node.supervisor
    actions = OperatorActions(data.gateway, supervisor, drain_timeout_s=settings.drain_timeout_s)
    lifecycle = Lifecycle(loaded, reread=reread, give_place=give_place, apply=_applied(node, data, actions))
    app = build_admin_app(
        control_plane,
        engine_status=supervisor.status,
        admin_token_sha256=digest(admin_token),
        reader_token_sha256=ReaderToken(settings.resolved_reader_token_file).sha256,
        used=data.uses.caller,
        limit_use=node.limiter,
        telemetry=node.telemetry,
        history=node.history.history,
        predictors=learning.predictors,
        known_costs=learning.caps.costs,
        actions=actions,
        quarantine=node.held,
        replays=learning.replays,
        daemon_actions=lifecycle,
        engine_log=node.engine_log,
        metrics_need_token=settings.admin.metrics_need_token,
        settings=lifecycle.in_force,
        reports=settings.resolved_state_dir / REPORTS,
        proxy=trusted_proxy(settings),
        extra_routes=lambda app: add_probes(
            app,
            node.metrics,
            lambda: control_plane.store.lost_because() or supervisor.not_ready_because(),
            lambda: degraded(node.telemetry.alarms),
        ),
    )
    prepare_routes(app)
    return AdminPlane(app=data.listeners.guard(app, settings), actions=actions, lifecycle=lifecycle)


def _applied(node: Node, data: DataPlane, actions: OperatorActions) -> tuple[Callable[[Settings], None], ...]:
    """What settings that were read again are put in force by, in this order."""
    return (
        partial(_use_plan, node.supervisor),
        lambda new: configure_logging(new.log.level, new.log.format),
        data.listeners.use,
        lambda new: data.gateway.use_limits(body_limits(new), engine_times(new)),
        lambda new: node.admission.use_max(new.data.max_in_flight),
        lambda new: actions.use_drain_timeout(new.drain_timeout_s),
    )


def _use_plan(supervisor: Supervisor, settings: Settings) -> None:
    """Take a plan for the next engine. Raises: SettingsError if it could not be started; the plan stays."""
    engine = choose_engine(settings.engine, settings.resolved_state_dir)
    supervisor.use_plan(engine_plan(settings, engine), policy=settings.engine.policy)


def trusted_proxy(settings: Settings) -> TrustedProxy | None:
    """The proxy that may say who has logged in; None unless the settings name one."""
    admin = settings.admin
    if not admin.proxy_header:
        return None
    names = filter(None, map(str.strip, admin.proxy_operators.split(",")))
    peers = TrustedPeers(admin.proxy_peers)
    return TrustedProxy(sent=peers.sent, header=admin.proxy_header, operators=frozenset(names))
