"""What the strictest TBT targets cost the others: the last minutes as they were planned, and as if a tenant
asked for no more than the others do."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from pdmuxd.controlplane.outlook.queue_forecast import Forecast, Recent, forecast
from pdmuxd.controlplane.outlook.what_if import Predictors, questions
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.slo import Slo

MOST_TENANTS = 5
"""Those that bind longest, beside those that are capped: each takes a forecast or two, some 25 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TbtCost:
    """The cost of one tenant whose target was the strictest of those that decoded."""

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
    """The capped, then the others by the time for which they bind.

    Empty without traffic of two tenants, or while there is no engine.

    `floors_s`: by tenant, the strictest TBT target that steps are planned for, where it is capped. A capped
    tenant's own cost is told as if it had no cap. It does not raise the cost of another tenant, because steps
    are planned for the strictest target among the tenants that are not capped.
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

    capped = {name: floor_s for name, floor_s in (floors_s or {}).items() if name in own}
    planned = {name: _planned(slo, capped.get(name, 0.0)) for name, slo in own.items()}
    free_s = {name: slo.tbt_s for name, slo in own.items() if name not in capped}
    loosest_s = max(slo.tbt_s for slo in own.values())

    def binding(capped_others: Container[str]) -> Mapping[str, float]:
        return forecast_of(_floored(own, capped_others, loosest_s)).binding

    # Of a capped tenant as if it alone was not: behind a stricter one that is capped it would not show.
    shares = {name: binding(capped.keys() - {name}).get(name, 0.0) for name in capped}
    free = [(name, share) for name, share in binding(capped).items() if name in free_s]
    shares |= dict(free[:MOST_TENANTS])
    costs: list[TbtCost] = []
    for tenant, time_ratio in shares.items():
        tbt_s = own[tenant].tbt_s
        others_s = [target_s for name, target_s in free_s.items() if name != tenant]
        others_s = others_s or [slo.tbt_s for name, slo in planned.items() if name != tenant]
        others_tbt_s = max(tbt_s, min(others_s))
        in_force = forecast_of({**planned, tenant: own[tenant]})
        # A capped tenant is planned for at the others' strictest target: it gives way with them.
        without = forecast_of(_floored(own, {*capped, tenant}, others_tbt_s))
        costs.append(
            TbtCost(
                tenant=tenant,
                tbt_s=tbt_s,
                time_ratio=time_ratio,
                others_tbt_s=others_tbt_s,
                prefill_busy_ratio=in_force.prefill_busy_ratio,
                # Of the same time: past capacity both are busy all the time, which one of them takes longer.
                prefill_busy_ratio_without=in_force.busy_ratio_of(without.prefill_s),
            )
        )
    return tuple(costs)


def _floored(targets: Mapping[str, Slo], names: Container[str], floor_s: float) -> dict[str, Slo]:
    """Targets, those of `names` no stricter than `floor_s`."""
    return {name: _planned(slo, floor_s) if name in names else slo for name, slo in targets.items()}


def _planned(slo: Slo, floor_s: float) -> Slo:
    return replace(slo, tbt_s=floor_s) if floor_s > slo.tbt_s else slo
