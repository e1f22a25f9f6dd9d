"""What a limit on another tenant would do for one that is hurt: the forecast with it and without."""

from __future__ import annotations

from pdmuxd.controlplane.outlook.corrected import by_rank, in_time, used_of, waiting_requests
from pdmuxd.controlplane.outlook.queue_forecast import Recent, TenantForecast, forecast
from pdmuxd.controlplane.outlook.what_if import Predictors, questions
from pdmuxd.controlplane.telemetry.incidents import OVER_WINDOW_S
from pdmuxd.controlplane.telemetry.open_incident import Limiting, Predicted
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
    if not any(one.tenant == of.behind for one in requests):
        return Predicted(of=of, why_not=f"{of.behind} has sent nothing since it began")
    held = {name: known[name].slo for name in {one.tenant for one in requests}}
    firsts = [(one.ttft_s, one.new_tokens) for one in own if one.ttft_s is not None]
    waited = [(now_s - one.arrived_s, one.new_tokens) for one in own if one.ttft_s is None]
    measured = used_of(firsts, waited, held[of.tenant])
    if not measured:
        return Predicted(of=of, why_not=f"none of {of.tenant}'s requests can be judged yet")
    recent = Recent.of(requests, telemetry.recent.samples(now_s))

    def made(concurrency: int | None, *, by_deadline: bool) -> TenantForecast:
        limits = None if concurrency is None else {of.behind: concurrency}
        return forecast(recent, held, asked, None, limits, by_deadline=by_deadline).tenants[of.tenant]

    def share(one: TenantForecast) -> float:
        return one.ttft_attainment_ratio or 0.0

    # Small prompts ride beside the chunks of long ones under every order, which the queue does not know: the
    # order is assumed that comes nearer to what was measured.
    kept = in_time(measured)
    by_order = {by_deadline: made(None, by_deadline=by_deadline) for by_deadline in (False, True)}
    by_deadline = min(by_order, key=lambda order: abs(share(by_order[order]) - kept))
    before = by_order[by_deadline]
    if abs(share(before) - kept) > NEAR_RATIO:
        return Predicted(
            of=of,
            why_not=f"the forecast does not see what happens: {share(before):.1%} of TTFT in time, "
            f"the engine made {kept:.1%}",
        )

    def kept_with(concurrency: int) -> tuple[float, float]:
        # What the queue alone says is too dark where it is so of what is; what was measured, changed as the
        # queue changes, is too bright where a few long prompts at a time hold up who comes between.
        found = made(concurrency, by_deadline=by_deadline)
        low, high = sorted((share(found), in_time(by_rank(measured, found, before))))
        return low, high

    tried = of.concurrency
    best, after = tried, kept_with(tried)
    while tried > 1 and after[0] < held[of.tenant].attainment_ratio:
        tried //= 2
        if (found := kept_with(tried)) > after:
            best, after = tried, found
    low, high = (f"{each:.1%}" for each in after)
    foreseen = low if low == high else f"between {low} and {high}"
    return Predicted(of=of, concurrency=best, text=f"{of.tenant}: {kept:.1%} to {foreseen} of TTFT in time")
