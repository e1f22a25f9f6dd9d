"""How what a node learns by itself, and keeps in files of its state directory, is put together."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.duties.delivery_check import DeliveryKeeper
from pdmuxd.daemon.duties.kept_effects import EffectsKeeper
from pdmuxd.daemon.duties.kept_forecasts import ForecastKeeper
from pdmuxd.daemon.duties.tbt_cap_check import TbtCapKeeper
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import DeliveryCollector, FallbackCollector, TbtCostCollector
from pdmuxd.daemon.serving.live_predictors import LivePredictors
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.daemon.traffic.fallback import FallbackKeeper
from pdmuxd.daemon.traffic.jobs import TrafficReplays


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepers:
    """Each reads its file when it is made; nothing of it runs yet."""

    fallback: FallbackKeeper
    caps: TbtCapKeeper
    effects: EffectsKeeper
    delivery: DeliveryKeeper
    forecasts: ForecastKeeper


def build_keepers(
    settings: Settings,
    control_plane: ControlPlane,
    *,
    supervisor: Supervisor,
    telemetry: Telemetry,
    replays: TrafficReplays,
    predictors: LivePredictors,
    metrics: Metrics,
) -> Keepers:
    """The keepers, whose findings the supervisor tells its engines, and whose metrics are registered."""
    fallback = FallbackKeeper(
        settings.resolved_state_dir / "fallbacks.json",
        replays,
        status=supervisor.status,
        directory=lambda: telemetry.directory,
        clock=time.time,
    )
    fallback.on_learned = lambda: supervisor.use_fallback(fallback.tokens_for)
    supervisor.use_fallback(fallback.tokens_for)
    metrics.registry.register(FallbackCollector(fallback.state))
    caps = TbtCapKeeper(
        settings.resolved_state_dir / "tbt-caps.json",
        telemetry,
        predictors,
        control_plane,
        clock=time.monotonic,
    )
    caps.on_changed = lambda: supervisor.use_floors(caps.floors_s)
    supervisor.use_floors(caps.floors_s)
    metrics.registry.register(TbtCostCollector(caps, metrics.tenants))
    effects = EffectsKeeper(settings.resolved_state_dir / "effects.json", telemetry.effects)
    pace = supervisor.token_counts.pace
    delivery = DeliveryKeeper(
        telemetry.delivery, clock=telemetry.clock, is_paced=lambda: pace.has_paced(time.monotonic())
    )
    predictors.delivery_s = lambda: delivery.planned_s
    delivery.on_changed = lambda: supervisor.use_delivery(predictors.delivery_s)
    metrics.registry.register(DeliveryCollector(delivery))
    forecasts = ForecastKeeper(settings.resolved_state_dir / "forecasts.json", telemetry, predictors)
    return Keepers(fallback=fallback, caps=caps, effects=effects, delivery=delivery, forecasts=forecasts)
