"""What a limit on another tenant would do for one that is hurt: the forecast with it and without."""

from __future__ import annotations

from pdmuxd.controlplane.outlook.corrected import waiting_requests
from pdmuxd.controlplane.outlook.queue_forecast import Recent, forecast
from pdmuxd.controlplane.outlook.what_if import Predictors, questions
from pdmuxd.controlplane.telemetry.incidents import OVER_WINDOW_S, Limiting, Predicted
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError

ENOUGH = 10
"""Requests of the tenant since the incident began: of fewer one is more than ten points."""
NEAR_RATIO = 0.2
"""By how much the forecast of what is may differ from what was measured. Shares in an overload were foreseen
within 2.3 points in six of seven changes; one that is a fifth off does not see what happens."""


def predicted(of: Limiting, telemetry: Telemetry, predictors: Predictors) -> Predicted:
    """Forecast the requests since the incident began, served as they are and with the limit, which is halved
    until it keeps the promise."""
    try:
        asked = questions(telemetry, predictors)
    except EngineError as error:
        return Predicted(of=of, why_not=f"no forecast: {error}")
    now_s = telemetry.clock()
    ended = telemetry.recent.requests(now_s)
    known = telemetry.directory.tenants
    since_s = of.began_s - OVER_WINDOW_S
    requests = [
        one
        for one in (*ended, *waiting_requests(telemetry, ended, now_s))
        if one.arrived_s >= since_s and one.tenant in known
    ]
    own = [one for one in requests if one.tenant == of.tenant]
    if len(own) < ENOUGH:
        return Predicted(of=of, why_not=f"{of.tenant} has sent {len(own)} requests since it began")
    held = {name: known[name].slo for name in {one.tenant for one in requests}}
    late = [
        not one.ttft_met if one.ttft_s is not None else True
        for one in own
        if one.ttft_s is not None or now_s - one.arrived_s > held[of.tenant].ttft_target_s(one.new_tokens)
    ]
    recent = Recent.of(requests, telemetry.recent.samples(now_s))
    delays = telemetry.delays.all(now_s)

    def share(concurrency: int | None) -> float | None:
        limits = None if concurrency is None else {of.behind: concurrency}
        found = forecast(recent, held, asked, delays, limits).tenants.get(of.tenant)
        return None if found is None else found.ttft_attainment_ratio

    before = share(None)
    if before is None or not late:
        return Predicted(of=of, why_not=f"none of {of.tenant}'s requests can be judged yet")
    measured = 1.0 - sum(late) / len(late)
    if abs(before - measured) > NEAR_RATIO:
        return Predicted(
            of=of,
            why_not=f"the forecast does not see what happens: {before:.1%} of TTFT in time, "
            f"the engine made {measured:.1%}",
        )
    tried = of.concurrency
    best, after = tried, share(tried) or 0.0
    while tried > 1 and after < held[of.tenant].attainment_ratio:
        tried //= 2
        if (found := share(tried) or 0.0) > after:
            best, after = tried, found
    text = f"{of.tenant}: {before:.1%} to {after:.1%} of TTFT in time"
    return Predicted(of=of, concurrency=best, text=text)
