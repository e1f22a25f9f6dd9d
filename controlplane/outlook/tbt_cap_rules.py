"""Caps of what a tenant's TBT target may cost the others: who is capped, and when that begins and ends.

A tenant with `max_tbt_cost_ratio` whose target cost a larger share of the prefill time over the last minutes
is capped: steps are planned for the strictest target of the others instead of its own. Its gaps are judged by
its own target all the same, so its attainment says what the cap does to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from pdmuxd.controlplane.outlook.tbt_costs import TbtCost
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap, TbtCaps
from pdmuxd.controlplane.tenants.records import TenantRecord

BEGINS_AFTER = 2
"""Looks in a row with a cost above the cap."""
ENDS_AFTER = 4
"""Looks in a row with a cost well under the cap."""
ENDS_BELOW = 0.8
"""So much of the cap is well under it: at the cap itself a tenant would be capped and freed in turns."""


KnownCosts = Callable[[], tuple[TbtCost, ...]]
"""What targets cost in the last minutes, looked up now, in any thread. Raises: EngineError."""


class CapRule:
    """Decides, look by look, who is capped. Not safe to use from several threads."""

    def __init__(self, caps: TbtCaps) -> None:
        self.caps: dict[str, TbtCap] = dict(caps)
        self._in_a_row: dict[str, int] = {}
        """Looks that spoke for a change, by tenant."""

    def look(
        self, costs: Iterable[TbtCost], tenants: Mapping[str, TenantRecord], *, now_s: float
    ) -> tuple[dict[str, TbtCap], dict[str, TbtCap]]:
        """Take in what targets cost in the last minutes; who is capped from now on, and who no longer is."""
        by_tenant = {cost.tenant: cost for cost in costs}
        ended = {name: cap for name, cap in self.caps.items() if not cap.holds_for(tenants.get(name))}
        for name in ended:
            del self.caps[name]
        begun: dict[str, TbtCap] = {}
        in_a_row: dict[str, int] = {}
        for name in {*by_tenant, *self.caps}:
            tenant, cost = tenants.get(name), by_tenant.get(name)
            if tenant is None or tenant.max_tbt_cost_ratio is None:
                continue
            cap, most = self.caps.get(name), tenant.max_tbt_cost_ratio
            ratio = 0.0 if cost is None else cost.prefill_ratio
            speaks_for_change = ratio > most if cap is None else ratio == 0.0 or ratio < ENDS_BELOW * most
            in_a_row[name] = self._in_a_row.get(name, 0) + 1 if speaks_for_change else 0
            if cap is not None and in_a_row[name] >= ENDS_AFTER:
                ended[name] = self.caps.pop(name)
                del in_a_row[name]
            elif cap is None and cost is not None and in_a_row[name] >= BEGINS_AFTER:
                begun[name] = self.caps[name] = TbtCap(
                    since_s=now_s, tenant_since_ms=tenant.since_ms, tbt_s=cost.others_tbt_s, cost_ratio=ratio
                )
                del in_a_row[name]
            elif cap is not None and cost is not None and cost.others_tbt_s > cost.tbt_s:
                # The others' strictest may be another by now.
                self.caps[name] = msgspec.structs.replace(cap, tbt_s=cost.others_tbt_s)
        self._in_a_row = in_a_row
        return begun, ended
