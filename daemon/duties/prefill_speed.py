"""How fast prompts are prefilled at present: live predictors, and what the policy in force makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from pdmuxd.controlplane.outlook.assumed_load import Wish
from pdmuxd.controlplane.outlook.what_if import Predicting, what_if
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.gateway.forecast import FirstTokens, Speed
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.core.errors import PdmuxdError

PERIOD_S = 1.0

log = structlog.get_logger("pdmuxd.daemon")


def present_speed(telemetry: Telemetry, predictors: Callable[[], Predicting | None]) -> Speed | None:
    """Asks the policy about one prompt beside the decode batch of now, under the strictest active target.

    Its finish over that of the same prompt alone on the whole GPU is what decoding costs a prefill; None
    while nothing is known to predict with.
    """
    predicting = predictors()
    hello = telemetry.status().hello
    if predicting is None or hello is None:
        return None
    in_flight, tenants = telemetry.in_flight(), telemetry.directory.tenants
    caps = telemetry.tbt_caps
    targets = [
        max(tenants[name].slo.tbt_s, caps[name].tbt_s if name in caps else 0.0)
        for name in in_flight
        if name in tenants
    ]
    try:
        outlook = what_if(Wish(tbt_s=min(targets, default=0.05)), telemetry, lambda: predicting)
    except PdmuxdError as error:
        log.debug("the policy cannot be asked how fast it prefills", reason=str(error))
        return None
    latency, total_sms = predicting.context.latency, hello.total_sms
    prompt = outlook.assumed
    alone_s = latency.request_s(prompt.prefill_new_tokens, prompt.prefill_reused_tokens, total_sms)
    chosen = outlook.answer.chosen
    finish_s = chosen.finish_s if chosen is not None else None
    slowdown = max(1.0, finish_s / alone_s) if finish_s is not None and alone_s > 0 else 1.0
    return lambda new_tokens: slowdown * latency.request_s(new_tokens, 0, total_sms)


def duties(
    first_tokens: FirstTokens, telemetry: Telemetry, predictors: Callable[[], Predicting | None]
) -> tuple[Duty, ...]:
    """Look again every PERIOD_S, while any tenant refuses late requests."""

    async def look() -> None:
        if first_tokens.is_wanted:
            first_tokens.speed = await asyncio.to_thread(present_speed, telemetry, predictors)

    return (Duty(name="forecasting first tokens", work=look, period_s=PERIOD_S),)
