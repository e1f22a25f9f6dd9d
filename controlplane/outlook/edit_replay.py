"""What a change did by itself: the requests that came since it, forecast under both settings."""

from __future__ import annotations

from pdmuxd.controlplane.outlook.corrected import waiting_requests
from pdmuxd.controlplane.outlook.queue_forecast import Forecast, Recent, forecast
from pdmuxd.controlplane.outlook.what_if import Predictors, questions
from pdmuxd.controlplane.telemetry.effects import Effect, Replay, ReplayedTenant
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.slo import Slo

MOST_TENANTS = 200
"""As many as are measured of a change."""


def replayed(effect: Effect, telemetry: Telemetry, predictors: Predictors) -> Replay:
    """Both forecasts, or why there is none."""
    if effect.was is None:
        return Replay(why_not="only changes of one tenant's targets, or of the policy, are replayed")
    now_s = telemetry.clock()
    known = telemetry.directory.tenants
    ended = telemetry.recent.requests(now_s)
    requests = [
        one
        for one in (*ended, *waiting_requests(telemetry, ended, now_s))
        if one.arrived_s >= effect.at_s and one.tenant in known
    ]
    if not requests:
        return Replay(why_not="no request came since")
    now = {name: known[name].slo for name in {one.tenant for one in requests}}
    try:
        asked = was_asked = questions(telemetry, predictors)
        if isinstance(effect.was, str):
            was_asked = questions(telemetry, predictors, policy=effect.was)
    except EngineError as error:
        return Replay(why_not=str(error))
    was = now
    if isinstance(effect.was, Slo) and effect.tenant in now:
        was = now | {effect.tenant: effect.was}
    recent = Recent.of(requests, telemetry.recent.samples(now_s))
    delays = telemetry.delays.all(now_s)
    before, after = forecast(recent, was, was_asked, delays), forecast(recent, now, asked, delays)
    return Replay(requests=len(recent.requests), tenants=_tenants(before, after))


def _tenants(before: Forecast, after: Forecast) -> dict[str, ReplayedTenant]:
    busiest = sorted(after.tenants, key=lambda name: (-after.tenants[name].requests, name))
    found = {}
    for name in busiest[:MOST_TENANTS]:
        one, was = after.tenants[name], before.tenants[name]
        found[name] = ReplayedTenant(
            requests=one.requests,
            ttft_before=was.ttft_attainment_ratio,
            ttft_after=one.ttft_attainment_ratio,
            tbt_before=was.tbt_attainment_ratio,
            tbt_after=one.tbt_attainment_ratio,
        )
    return found
