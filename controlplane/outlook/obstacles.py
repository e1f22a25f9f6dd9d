"""Targets that cannot be met at the load of the last minutes, and the lowest that can."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.outlook.assumed_load import Assumed
from pdmuxd.controlplane.outlook.queue_forecast import TenantForecast
from pdmuxd.controlplane.outlook.what_if import Questions
from pdmuxd.controlplane.outlook.whole_answers import lowest_e2e_s
from pdmuxd.controlplane.telemetry.recent import EndedRequest
from pdmuxd.engine.core.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A target that cannot be met at the load of the last minutes."""

    field: str
    text: str
    lowest_s: float | None


def obstacles_of(
    asked: Questions,
    slo: Slo,
    current: Slo,
    usual: Assumed,
    after: TenantForecast | None,
    requests: tuple[EndedRequest, ...],
    tenant: str,
) -> tuple[Obstacle, ...]:
    """What cannot be met. A target that is no stricter than the one that holds is never refused."""
    found = []
    if slo.tbt_s < current.tbt_s and not _meets_tbt(asked, slo, usual, after):
        lowest_s = asked.lowest_tbt_s(usual)
        lowest = "none is feasible" if lowest_s is None else f"the lowest feasible is {_up(lowest_s)} ms"
        text = f"tbt_ms {to_ms(slo.tbt_s):g} is infeasible: {lowest}"
        found.append(Obstacle(field="tbt_ms", text=text, lowest_s=lowest_s))
    tightens = (
        slo.ttft_fixed_s < current.ttft_fixed_s
        or slo.ttft_per_1k_new_tokens_s < current.ttft_per_1k_new_tokens_s
    )
    lowest_s = _lowest_ttft_fixed_s(asked, slo, usual, requests, tenant)
    if tightens and slo.ttft_fixed_s < lowest_s:
        text = (
            f"ttft_fixed_ms {to_ms(slo.ttft_fixed_s):g} is infeasible: the prefill alone takes longer "
            f"for more requests than may be late; the lowest feasible is {_up(lowest_s)} ms"
        )
        found.append(Obstacle(field="ttft_fixed_ms", text=text, lowest_s=lowest_s))
    if slo.e2e_s is not None and slo.e2e_s < (current.e2e_s or math.inf):
        whole_s = lowest_e2e_s(asked, requests, tenant, slo.attainment_ratio)
        if whole_s is not None and slo.e2e_s < whole_s:
            text = (
                f"e2e_ms {to_ms(slo.e2e_s):g} is infeasible: more answers than may be late take longer with "
                f"the device to themselves; the lowest feasible is {_up(whole_s)} ms"
            )
            found.append(Obstacle(field="e2e_ms", text=text, lowest_s=whole_s))
    return tuple(found)


def _meets_tbt(asked: Questions, slo: Slo, usual: Assumed, after: TenantForecast | None) -> bool:
    """Whether TBT is met beside a usual prefill, or missed so rarely that the share promised is kept."""
    if asked.ask(slo.tbt_s, usual).is_feasible:
        return True
    share = None if after is None else after.tbt_attainment_ratio
    return share is not None and share >= slo.attainment_ratio


def _lowest_ttft_fixed_s(
    asked: Questions, slo: Slo, usual: Assumed, requests: tuple[EndedRequest, ...], tenant: str
) -> float:
    """The fixed part that just suffices where nobody waits, for the share of requests that is promised."""
    lengths = Counter((one.new_tokens, one.reused_tokens) for one in requests if one.tenant == tenant)
    lengths = lengths or Counter([(usual.prefill_new_tokens, usual.prefill_reused_tokens)])
    policy = asked.policy
    latency, sms = policy.context.latency, policy.table.rules.total_sms
    needed = sorted(
        (latency.request_s(max(1, new), reused, sms) - slo.ttft_per_1k_new_tokens_s * new / 1000.0, count)
        for (new, reused), count in lengths.items()
    )
    owed = math.ceil(slo.attainment_ratio * lengths.total())
    for fixed_s, count in needed:
        owed -= count
        if owed <= 0:
            return max(0.0, fixed_s)
    return 0.0


def _up(seconds: float) -> str:
    """Milliseconds, rounded up to a tenth, so that what is named is feasible."""
    return f"{math.ceil(seconds * 10_000.0 - 1e-6) / 10.0:g}"
