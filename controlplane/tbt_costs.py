"""What the strictest TBT targets cost the others: the last minutes as they were planned, and as if a tenant
asked for no more than the others do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pdmuxd.controlplane.forecast import Forecast, Recent, forecast
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.what_if import Predictors, questions
from pdmuxd.engine.core.slo import Slo

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
    """Of the time, if steps are planned for its own target."""
    prefill_busy_ratio_without: float
    """The same if its target were the others' strictest."""

    @property
    def prefill_ratio(self) -> float:
        """What it costs, or would cost if it is capped: the share of the device's time that prefills take
        longer because of its target."""
        return max(0.0, self.prefill_busy_ratio - self.prefill_busy_ratio_without)


def tbt_costs(
    telemetry: Telemetry, predictors: Predictors, floors_s: Mapping[str, float] | None = None
) -> tuple[TbtCost, ...]:
    """By the time for which they bind; empty without traffic of two tenants, or while there is no engine.

    `floors_s`: by tenant, the strictest TBT target that steps are planned for, where it is capped. A capped
    tenant's cost is what it would be without its own cap.
    Raises: EngineError if the policy in force cannot be asked.
    """
    now_s = telemetry.clock()
    requests, known = telemetry.recent.requests(now_s), telemetry.directory.tenants
    own = {one.tenant: known[one.tenant].slo for one in requests if one.tenant in known}
    if len(own) < 2 or telemetry.status().hello is None or predictors() is None:
        return ()
    asked = questions(telemetry, predictors)
    recent = Recent.of(requests, telemetry.recent.samples(now_s))
    made: dict[frozenset[tuple[str, float]], Forecast] = {}

    def forecast_of(targets: Mapping[str, Slo]) -> Forecast:
        key = frozenset((name, slo.tbt_s) for name, slo in targets.items())
        if key not in made:
            made[key] = forecast(recent, targets, asked)
        return made[key]

    planned = {name: _planned(slo, (floors_s or {}).get(name, 0.0)) for name, slo in own.items()}
    costs: list[TbtCost] = []
    for tenant, time_ratio in list(forecast_of(own).binding.items())[:MOST_TENANTS]:
        tbt_s = own[tenant].tbt_s
        others_s = max(tbt_s, min(slo.tbt_s for name, slo in planned.items() if name != tenant))
        in_force = forecast_of({**planned, tenant: own[tenant]})
        without = forecast_of({**planned, tenant: replace(own[tenant], tbt_s=others_s)})
        costs.append(
            TbtCost(
                tenant=tenant,
                tbt_s=tbt_s,
                time_ratio=time_ratio,
                others_tbt_s=others_s,
                prefill_busy_ratio=in_force.prefill_busy_ratio,
                # Of the same time: past capacity both are busy all the time, which one of them takes longer.
                prefill_busy_ratio_without=in_force.busy_ratio_of(without.prefill_s),
            )
        )
    return tuple(costs)


def _planned(slo: Slo, floor_s: float) -> Slo:
    return replace(slo, tbt_s=floor_s) if floor_s > slo.tbt_s else slo
