"""What the strictest TBT targets cost the others: the last minutes under the targets in force, and as if a
tenant asked for no more than the others do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdmuxd.controlplane.forecast import Recent, forecast
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.what_if import Predictors, questions

MOST_TENANTS = 5
"""Those that bind longest: each takes a forecast, some 25 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TbtCost:
    """Of one tenant whose target was the strictest of those that decoded."""

    tenant: str
    tbt_s: float
    time_ratio: float
    """The share of the last minutes' decoding in which it was."""
    others_tbt_s: float
    """The strictest target of the others, if that is laxer; else its own."""
    prefill_busy_ratio: float
    """Of the time, under the targets in force."""
    prefill_busy_ratio_without: float
    """The same if its target were the others' strictest."""

    @property
    def prefill_ratio(self) -> float:
        """What it costs: the share of the device's prefill time that is lost to its target."""
        return max(0.0, self.prefill_busy_ratio - self.prefill_busy_ratio_without)


def tbt_costs(telemetry: Telemetry, predictors: Predictors) -> tuple[TbtCost, ...]:
    """By the time for which they bind; empty without traffic of two tenants, or while there is no engine.

    Raises: EngineError if the policy in force cannot be asked.
    """
    now_s = telemetry.clock()
    requests, known = telemetry.recent.requests(now_s), telemetry.directory.tenants
    targets = {one.tenant: known[one.tenant].slo for one in requests if one.tenant in known}
    if len(targets) < 2 or telemetry.status().hello is None or predictors() is None:
        return ()
    asked = questions(telemetry, predictors)
    recent = Recent.of(requests, telemetry.recent.samples(now_s))
    in_force = forecast(recent, targets, asked)
    costs: list[TbtCost] = []
    for tenant, time_ratio in list(in_force.binding.items())[:MOST_TENANTS]:
        own = targets[tenant]
        others_s = max(own.tbt_s, min(slo.tbt_s for name, slo in targets.items() if name != tenant))
        without = forecast(recent, targets | {tenant: replace(own, tbt_s=others_s)}, asked)
        costs.append(
            TbtCost(
                tenant=tenant,
                tbt_s=own.tbt_s,
                time_ratio=time_ratio,
                others_tbt_s=others_s,
                prefill_busy_ratio=in_force.prefill_busy_ratio,
                prefill_busy_ratio_without=without.prefill_busy_ratio,
            )
        )
    return tuple(costs)
