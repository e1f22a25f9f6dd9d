"""The third stage: what a node learns by itself, of which most is kept in files of its state directory."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.building.node import Node
from pdmuxd.daemon.duties.delivery_check import DeliveryKeeper
from pdmuxd.daemon.duties.kept_effects import EffectsKeeper
from pdmuxd.daemon.duties.kept_forecasts import ForecastKeeper
from pdmuxd.daemon.duties.refinement import Refinement
from pdmuxd.daemon.duties.shipped_profile import StandIn
from pdmuxd.daemon.duties.tbt_cap_check import TbtCapKeeper
from pdmuxd.daemon.metrics.collectors import DeliveryCollector, TbtCostCollector
from pdmuxd.daemon.serving.live_predictors import LivePredictors
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.traffic.jobs import TrafficReplays


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Each keeper has read its file; nothing of it runs yet."""

    predictors: LivePredictors
    replays: TrafficReplays
    refinement: Refinement
    stand_in: StandIn
    caps: TbtCapKeeper
    effects: EffectsKeeper
    delivery: DeliveryKeeper
    forecasts: ForecastKeeper


def build_learning(settings: Settings, control_plane: ControlPlane, node: Node) -> Learning:
    """What it finds later is published on the node's bus."""
    telemetry, supervisor, registry = node.telemetry, node.supervisor, node.metrics.registry
    state_dir, emulated = settings.resolved_state_dir, settings.engine.profile
    pace = supervisor.token_counts.pace
    delivery = DeliveryKeeper(
        telemetry.delivery,
        clock=telemetry.clock,
        publish=node.bus.publish,
        is_paced=lambda: pace.has_paced(time.monotonic()),
        attainment=lambda: _strictest_attainment(telemetry.directory.tenants.values()),
    )
    registry.register(DeliveryCollector(delivery))
    predictors = LivePredictors(
        status=supervisor.status,
        wanted=lambda: supervisor.wanted,
        emulated=emulated,
        delivery_s=lambda: delivery.planned_s,
    )
    replays = TrafficReplays(
        node.traffic,
        status=supervisor.status,
        wanted=lambda: supervisor.wanted,
        directory=lambda: telemetry.directory,
        emulated=emulated,
    )
    caps = TbtCapKeeper(
        state_dir / "tbt-caps.json",
        telemetry,
        predictors,
        control_plane,
        clock=time.monotonic,
        publish=node.bus.publish,
    )
    registry.register(TbtCostCollector(caps, node.metrics.tenants))
    return Learning(
        predictors=predictors,
        replays=replays,
        refinement=Refinement(
            control_plane,
            status=supervisor.status,
            clock=telemetry.clock,
            at_bound=telemetry.alarm_watch.on_at_bound,
        ),
        stand_in=StandIn(control_plane, is_wanted=settings.engine.sglang.shipped_profile),
        caps=caps,
        effects=EffectsKeeper(state_dir / "effects.json", telemetry.effects),
        delivery=delivery,
        forecasts=ForecastKeeper(state_dir / "forecasts.json", telemetry, predictors),
    )


def _strictest_attainment(tenants: Iterable[TenantRecord]) -> float:
    return max((tenant.slo.attainment_ratio for tenant in tenants if tenant.enabled), default=0.0)
