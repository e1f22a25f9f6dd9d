"""The first stage: the supervisor of the engine, and what is known of the node and of its requests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.bus import EventBus
from pdmuxd.daemon.duties.kept_history import HistoryKeeper, history_keeper
from pdmuxd.daemon.duties.own_health import OwnHealth, build_own_health
from pdmuxd.daemon.duties.quarantine_record import QuarantineRecord
from pdmuxd.daemon.duties.token_use import UseKeeper
from pdmuxd.daemon.duties.unsaved import Unsaved
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.quarantine import Quarantine
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import QuarantineCollector, TokenCollector, collectors
from pdmuxd.daemon.process.clock import ClockWatch, steady_clock
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.supervisor.choice import EngineChoice
from pdmuxd.daemon.supervisor.plan import EnginePlan
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.daemon.traffic.ring import TrafficRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Nothing of it runs yet."""

    bus: EventBus
    metrics: Metrics
    supervisor: Supervisor
    engine_log: Path
    admission: Admission
    limiter: Limiter
    use: UseKeeper
    telemetry: Telemetry
    history: HistoryKeeper
    health: OwnHealth
    quarantine: Quarantine
    held: QuarantineRecord
    traffic: TrafficRing


def build_node(settings: Settings, plan: EnginePlan, control_plane: ControlPlane) -> Node:
    """The bus carries all that the supervisor says of the engine, which is not started yet."""
    bus, clock = EventBus(), ClockWatch()
    metrics = Metrics(max_tenants=settings.admin.metrics_max_tenants)
    supervisor = Supervisor(
        plan,
        settings=control_plane.directory.engine_settings(""),
        publish=bus.publish,
        policy=settings.engine.policy,
    )
    admission = Admission(settings.data.max_in_flight)
    limiter = Limiter(on_cost=metrics.cost)
    use, unsaved = UseKeeper(limiter, control_plane), Unsaved()
    health = build_own_health(
        settings,
        control_plane.store,
        metrics,
        clock=clock,
        use=use.unsaved,
        history=unsaved,
        pace=supervisor.token_counts.pace,
        late_launches=lambda: _late_launches(supervisor),
    )
    quarantine = Quarantine(settings.data.quarantine_s)
    held = QuarantineRecord(quarantine, control_plane)
    metrics.registry.register(QuarantineCollector(quarantine.held_by_tenant, metrics.tenants))
    traffic = TrafficRing(settings.resolved_state_dir, max_bytes=settings.admin.traffic_max_bytes)
    telemetry = Telemetry(
        clock=steady_clock(),
        wall_clock=time.time,
        status=supervisor.status,
        in_flight=admission.by_tenant,
        on_ended=traffic.on_ended,
        on_settled=metrics.request_judged,
        on_outcome=metrics.request_over,
        own_conditions=lambda: (*health.conditions(), *held.conditions()),
    )
    for collector in collectors(telemetry, metrics.tenants, node_limit=admission.max_in_flight):
        metrics.registry.register(collector)
    metrics.registry.register(TokenCollector(supervisor.token_counts))
    return Node(
        bus=bus,
        metrics=metrics,
        supervisor=supervisor,
        engine_log=plan.log_path,
        admission=admission,
        limiter=limiter,
        use=use,
        telemetry=telemetry,
        history=history_keeper(settings.history, telemetry, control_plane, clock, unsaved),
        health=health,
        quarantine=quarantine,
        held=held,
        traffic=traffic,
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


def _late_launches(supervisor: Supervisor) -> int:
    stats = supervisor.status().stats
    return 0 if stats is None else stats.host_delays
