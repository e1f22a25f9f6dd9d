"""All that the daemon does by itself once it serves, in the order in which it begins."""

from __future__ import annotations

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.turning import keep_turning
from pdmuxd.daemon.builders import Parts
from pdmuxd.daemon.duties import (
    delivery_check,
    kept_effects,
    kept_forecasts,
    last_used,
    own_health,
    prefill_speed,
    quarantine_record,
    refinement,
    retention,
    tbt_cap_check,
    token_use,
)
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.traffic import fallback, ring


def duties(parts: Parts, control_plane: ControlPlane, settings: Settings) -> tuple[Duty, ...]:
    """Nothing of it runs yet. The history is kept from before, and to the end of the engine."""
    telemetry, keepers = parts.telemetry, parts.keepers
    return (
        Duty(name="taking the telemetry's turns", work=lambda: keep_turning(telemetry), is_alone=True),
        *refinement.duties(parts.refinement),
        Duty(name="putting a shipped profile in force", work=parts.stand_in.wait, is_alone=True),
        *last_used.duties(parts.uses),
        *retention.duties(control_plane, settings.audit_retention_days, parts.health.clock),
        *own_health.duties(parts.health),
        *quarantine_record.duties(parts.held),
        *ring.duties(parts.traffic),
        *fallback.duties(keepers.fallback, is_wanted=settings.engine.learn_fallback),
        *token_use.duties(parts.use),
        *tbt_cap_check.duties(keepers.caps),
        *kept_effects.duties(keepers.effects),
        *kept_forecasts.duties(keepers.forecasts),
        *delivery_check.duties(keepers.delivery),
        *prefill_speed.duties(parts.first_tokens, telemetry, parts.predictors),
    )
