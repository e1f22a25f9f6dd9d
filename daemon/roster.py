"""All that the daemon does by itself once it serves, in the order in which it begins."""

from __future__ import annotations

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.turning import keep_turning
from pdmuxd.daemon.building.parts import Parts
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
from pdmuxd.daemon.traffic import ring


def duties(parts: Parts, control_plane: ControlPlane, settings: Settings) -> tuple[Duty, ...]:
    """Nothing of it runs yet. The history is kept from before, and to the end of the engine."""
    node, data, learning, telemetry = parts.node, parts.data, parts.learning, parts.node.telemetry
    return (
        Duty(name="taking the telemetry's turns", work=lambda: keep_turning(telemetry), is_alone=True),
        *refinement.duties(learning.refinement),
        Duty(name="putting a shipped profile in force", work=learning.stand_in.wait, is_alone=True),
        *last_used.duties(data.uses),
        *retention.duties(control_plane, settings.audit_retention_days, node.health.clock),
        *own_health.duties(node.health),
        *quarantine_record.duties(node.held),
        *ring.duties(node.traffic),
        *token_use.duties(node.use),
        *tbt_cap_check.duties(learning.caps),
        *kept_effects.duties(learning.effects),
        *kept_forecasts.duties(learning.forecasts),
        *delivery_check.duties(learning.delivery),
        *prefill_speed.duties(data.first_tokens, telemetry, learning.predictors),
    )
