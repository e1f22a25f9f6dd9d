"""How the daemon's parts are made of the settings: the engine's side, the data plane, the admin plane."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pdmuxd.controlplane.admin_app import build_admin_app, prepare_routes
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.outlook.tbt_cap_rules import KnownCosts
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.web.proxy import TrustedProxy
from pdmuxd.daemon.bus import DirectoryChanged, EventBus
from pdmuxd.daemon.duties.keepers import Keepers, build_keepers
from pdmuxd.daemon.duties.kept_history import HistoryKeeper, history_keeper
from pdmuxd.daemon.duties.last_used import Uses
from pdmuxd.daemon.duties.own_health import OwnHealth, build_own_health, degraded
from pdmuxd.daemon.duties.quarantine_record import QuarantineRecord
from pdmuxd.daemon.duties.refinement import Refinement
from pdmuxd.daemon.duties.shipped_profile import StandIn
from pdmuxd.daemon.duties.token_use import UseKeeper
from pdmuxd.daemon.events import (
    EngineEvents,
    connect_engine,
    connect_gateway,
    connect_metrics,
    connect_refinement,
    connect_telemetry,
)
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.gateway.bounds import RequestBounds
from pdmuxd.daemon.gateway.forecast import FirstTokens
from pdmuxd.daemon.gateway.forwarding import EngineTimes
from pdmuxd.daemon.gateway.intake import BodyLimits
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.httpd.listeners import Listeners
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import QuarantineCollector, TokenCollector, collectors
from pdmuxd.daemon.metrics.garbage import garbage_holder
from pdmuxd.daemon.process.clock import ClockWatch, steady_clock
from pdmuxd.daemon.process.logging import configure_logging
from pdmuxd.daemon.serving.actions import OperatorActions
from pdmuxd.daemon.serving.lifecycle import Lifecycle
from pdmuxd.daemon.serving.live_predictors import LivePredictors
from pdmuxd.daemon.serving.node_load import node_load
from pdmuxd.daemon.serving.probes import add_probes
from pdmuxd.daemon.serving.reader_token import ReaderToken
from pdmuxd.daemon.settings import LoadedSettings, Settings
from pdmuxd.daemon.settings.places import REPORTS
from pdmuxd.daemon.supervisor.choice import EngineChoice, choose_engine
from pdmuxd.daemon.supervisor.plan import EnginePlan
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.daemon.tracing.building import Tracing
from pdmuxd.daemon.traffic.fallback import FallbackKeeper
from pdmuxd.daemon.traffic.jobs import TrafficReplays
from pdmuxd.daemon.traffic.prefixes import PrefixHasher
from pdmuxd.daemon.traffic.ring import TrafficRing
from pdmuxd.engine.link.garbage import GarbageHolder
from pdmuxd.engine.link.messages import Hello, RequestRecord, TenantQueues


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that was built; nothing of it runs yet."""

    bus: EventBus
    supervisor: Supervisor
    gateway: Gateway
    admin_app: Callable[..., Any]
    listeners: Listeners
    actions: OperatorActions
    telemetry: Telemetry
    refinement: Refinement
    stand_in: StandIn
    uses: Uses
    history: HistoryKeeper
    limiter: Limiter
    use: UseKeeper
    health: OwnHealth
    first_tokens: FirstTokens
    tracing: Tracing
    predictors: LivePredictors
    lifecycle: Lifecycle
    traffic: TrafficRing
    replays: TrafficReplays
    keepers: Keepers
    garbage: GarbageHolder
    held: QuarantineRecord


def build(
    loaded: LoadedSettings,
    engine: EngineChoice,
    control_plane: ControlPlane,
    *,
    admin_token: str,
    reread: Callable[[], LoadedSettings] | None = None,
) -> Parts:
    """All parts, connected by the bus; `reread` reads the settings again."""
    settings = loaded.settings
    bus, uses, clock = EventBus(), Uses(control_plane), ClockWatch()
    metrics = Metrics(max_tenants=settings.admin.metrics_max_tenants)
    plan, snapshot = engine_plan(settings, engine), control_plane.directory
    supervisor = build_engine(settings, plan, bus, snapshot)
    admission = Admission(settings.data.max_in_flight)
    limiter, first_tokens = Limiter(), FirstTokens()
    telemetry = build_telemetry(supervisor, admission, metrics)
    history = history_keeper(settings.history, telemetry, control_plane, clock)
    use = UseKeeper(limiter, control_plane)
    health = build_own_health(
        settings,
        control_plane.store,
        metrics,
        clock=clock,
        use=use,
        history=history,
        pace=supervisor.token_counts.pace,
        late_launches=lambda: _late_launches(supervisor),
    )
    listeners = Listeners.of(settings)
    garbage = garbage_holder(
        lambda: admission.in_flight == 0 and not listeners.many_came(), lambda: supervisor.link, metrics
    )
    predictors = LivePredictors(
        status=supervisor.status, wanted=lambda: supervisor.wanted, emulated=settings.engine.profile
    )
    reader, own = ReaderToken(settings.resolved_reader_token_file).sha256, digest(admin_token)
    listeners.recognize(
        data=lambda secret: control_plane.directory.knows_key(secret),
        admin=lambda secret: (
            digest(secret) in (own, reader())
            or control_plane.directory.find_admin_token(secret) is not None
            or control_plane.directory.knows_key(secret)
        ),
    )
    metrics.registry.register(listeners.collector())
    trusted = TrustedPeers(settings.data.trusted_peers)
    tracing = Tracing(
        settings.tracing,
        count=metrics.trace_spans,
        follows_parent=trusted.sent,
    )
    gateway = build_gateway(
        settings,
        snapshot,
        admission=admission,
        listeners=listeners,
        metrics=metrics,
        telemetry=telemetry,
        uses=uses,
        limiter=limiter,
        first_tokens=first_tokens,
        tracing=tracing,
        trusted=trusted,
    )
    supervisor.use_in_flight(gateway.in_flight)
    held = QuarantineRecord(gateway.quarantine, control_plane)
    telemetry.alarm_watch.own_conditions = lambda: (*health.conditions(), *held.conditions())
    traffic = TrafficRing(settings.resolved_state_dir, max_bytes=settings.admin.traffic_max_bytes)
    telemetry.on_ended = traffic.on_ended
    replays = TrafficReplays(
        traffic,
        status=supervisor.status,
        wanted=lambda: supervisor.wanted,
        directory=lambda: telemetry.directory,
        emulated=settings.engine.profile,
    )
    keepers = build_keepers(
        settings,
        control_plane,
        supervisor=supervisor,
        telemetry=telemetry,
        replays=replays,
        predictors=predictors,
        metrics=metrics,
    )
    metrics.registry.register(QuarantineCollector(gateway.quarantine.held_by_tenant, metrics.tenants))
    actions = OperatorActions(gateway, supervisor, drain_timeout_s=settings.drain_timeout_s)
    lifecycle = Lifecycle(
        loaded,
        reread=reread,
        apply=(
            partial(_use_plan, supervisor),
            lambda new: configure_logging(new.log.level, new.log.format),
            listeners.use,
            lambda new: gateway.use_limits(_body_limits(new), _engine_times(new)),
            lambda new: admission.use_max(new.data.max_in_flight),
            lambda new: actions.use_drain_timeout(new.drain_timeout_s),
        ),
    )
    admin_app = build_admin(
        settings,
        control_plane,
        supervisor=supervisor,
        telemetry=telemetry,
        history=history.history,
        metrics=metrics,
        actions=actions,
        quarantine=held,
        replays=replays,
        fallback=keepers.fallback,
        lifecycle=lifecycle,
        uses=uses,
        limiter=limiter,
        predictors=predictors,
        known_costs=keepers.caps.costs,
        admin_token=admin_token,
        engine_log=plan.log_path,
    )
    refinement = Refinement(
        control_plane,
        status=supervisor.status,
        clock=telemetry.clock,
        at_bound=telemetry.alarm_watch.on_at_bound,
    )
    # The order matters: a tenant's metrics exist before it is served, and it is served before anyone is told
    # about it.
    connect_metrics(bus, metrics)
    connect_gateway(bus, gateway)
    limiter.on_cost = metrics.cost
    bus.subscribe(Hello, limiter.on_hello)
    bus.subscribe(RequestRecord, limiter.on_request)
    bus.subscribe(RequestRecord, first_tokens.on_request)
    bus.subscribe(TenantQueues, first_tokens.on_queues)
    tracing.connect(bus)
    connect_telemetry(bus, telemetry)
    connect_refinement(bus, refinement)
    stand_in = StandIn(control_plane, is_wanted=settings.engine.sglang.shipped_profile)
    bus.subscribe(Hello, stand_in.on_hello)
    connect_engine(bus, supervisor)
    bus.subscribe(DirectoryChanged, keepers.caps.on_directory)
    return Parts(
        bus=bus,
        supervisor=supervisor,
        gateway=gateway,
        admin_app=listeners.guard(admin_app, settings),
        listeners=listeners,
        actions=actions,
        telemetry=telemetry,
        refinement=refinement,
        stand_in=stand_in,
        uses=uses,
        history=history,
        limiter=limiter,
        use=use,
        health=health,
        first_tokens=first_tokens,
        tracing=tracing,
        predictors=predictors,
        lifecycle=lifecycle,
        traffic=traffic,
        replays=replays,
        keepers=keepers,
        garbage=garbage,
        held=held,
    )


def _use_plan(supervisor: Supervisor, settings: Settings) -> None:
    """Take a plan for the next engine. Raises: SettingsError if it could not be started; the plan stays."""
    engine = choose_engine(settings.engine, settings.resolved_state_dir)
    supervisor.use_plan(engine_plan(settings, engine), policy=settings.engine.policy)


def _body_limits(settings: Settings) -> BodyLimits:
    data = settings.data
    bounds = RequestBounds(
        max_outputs=data.max_outputs,
        max_stops=data.max_stops,
        max_prompt_tokens=data.max_prompt_tokens,
        max_body_values=data.max_body_values,
        max_logprobs=data.max_logprobs,
    )
    return BodyLimits(max_bytes=data.max_body_bytes, bounds=bounds, timeout_s=settings.http.body_timeout_s)


def _engine_times(settings: Settings) -> EngineTimes:
    data = settings.data
    return EngineTimes(
        first_byte_s=data.first_byte_timeout_s,
        wait_s=data.engine_wait_s,
        quarantine_s=data.quarantine_s,
    )


def engine_plan(settings: Settings, engine: EngineChoice) -> EnginePlan:
    """How the engine process is started, and where it writes."""
    return EnginePlan(
        command=engine.command,
        command_for=engine.command_for,
        state_dir=settings.resolved_state_dir,
        runtime_dir=settings.resolved_runtime_dir,
        start_timeout_s=engine.start_timeout_s,
        backoff_initial_s=settings.engine.restart_backoff_initial_s,
        backoff_max_s=settings.engine.restart_backoff_max_s,
        token_buffer_bytes=settings.engine.token_buffer_bytes if settings.engine.has_direct_tokens else None,
    )


def build_engine(
    settings: Settings, plan: EnginePlan, bus: EventBus, snapshot: DirectorySnapshot
) -> Supervisor:
    """The supervisor of the engine process, which is not started yet; the bus carries all that it says."""
    return Supervisor(
        plan,
        settings=snapshot.engine_settings(""),
        listener=EngineEvents(bus),
        policy=settings.engine.policy,
    )


def _late_launches(supervisor: Supervisor) -> int:
    stats = supervisor.status().stats
    return 0 if stats is None else stats.host_delays


def build_telemetry(
    supervisor: Supervisor,
    admission: Admission,
    metrics: Metrics,
) -> Telemetry:
    """What is known of the engine and of the requests in flight, in events and as metrics."""
    telemetry = Telemetry(
        clock=steady_clock(),
        wall_clock=time.time,
        status=supervisor.status,
        in_flight=admission.by_tenant,
    )
    telemetry.on_settled = metrics.request_judged
    telemetry.on_outcome = metrics.request_over
    for collector in collectors(telemetry, metrics.tenants, node_limit=admission.max_in_flight):
        metrics.registry.register(collector)
    metrics.registry.register(TokenCollector(supervisor.token_counts))
    return telemetry


def build_gateway(
    settings: Settings,
    snapshot: DirectorySnapshot,
    *,
    admission: Admission,
    listeners: Listeners,
    metrics: Metrics,
    telemetry: Telemetry,
    uses: Uses,
    limiter: Limiter,
    first_tokens: FirstTokens,
    tracing: Tracing,
    trusted: TrustedPeers,
) -> Gateway:
    """The data plane's application."""
    data = settings.data
    return Gateway(
        directory=snapshot,
        limits=_body_limits(settings),
        admission=admission,
        times=_engine_times(settings),
        auth_failures=listeners.data_failures,
        metrics=metrics,
        observer=telemetry,
        name_prefixes=PrefixHasher().names if settings.admin.traffic_max_bytes else None,
        key_used=uses.key,
        load=partial(node_load, telemetry),
        tells_load=data.load_metrics,
        limiter=limiter,
        expected=telemetry.expected,
        first_tokens=first_tokens,
        tracer=tracing.tracer,
        trusted=trusted,
    )


def trusted_proxy(settings: Settings) -> TrustedProxy | None:
    """The proxy that may say who has logged in; None unless the settings name one."""
    admin = settings.admin
    if not admin.proxy_header:
        return None
    names = filter(None, map(str.strip, admin.proxy_operators.split(",")))
    peers = TrustedPeers(admin.proxy_peers)
    return TrustedProxy(sent=peers.sent, header=admin.proxy_header, operators=frozenset(names))


def build_admin(
    settings: Settings,
    control_plane: ControlPlane,
    *,
    supervisor: Supervisor,
    telemetry: Telemetry,
    history: History,
    metrics: Metrics,
    actions: OperatorActions,
    quarantine: QuarantineRecord,
    replays: TrafficReplays,
    fallback: FallbackKeeper,
    lifecycle: Lifecycle,
    uses: Uses,
    limiter: Limiter,
    predictors: LivePredictors,
    known_costs: KnownCosts,
    admin_token: str,
    engine_log: Path,
) -> Callable[..., Any]:
    """The admin plane's application, without the guard in front of it."""
    app = build_admin_app(
        control_plane,
        engine_status=supervisor.status,
        admin_token_sha256=digest(admin_token),
        reader_token_sha256=ReaderToken(settings.resolved_reader_token_file).sha256,
        used=uses.caller,
        limit_use=limiter,
        telemetry=telemetry,
        history=history,
        predictors=predictors,
        known_costs=known_costs,
        actions=actions,
        quarantine=quarantine,
        replays=replays,
        fallback=fallback,
        daemon_actions=lifecycle,
        engine_log=engine_log,
        metrics_need_token=settings.admin.metrics_need_token,
        settings=lifecycle.in_force,
        reports=settings.resolved_state_dir / REPORTS,
        proxy=trusted_proxy(settings),
        extra_routes=lambda app: add_probes(
            app,
            metrics,
            lambda: control_plane.store.lost_because() or supervisor.not_ready_because(),
            lambda: degraded(telemetry.alarms),
        ),
    )
    prepare_routes(app)
    return app
