"""A tenant whose TBT target is not planned for at present, since it costs the others too much."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pdmuxd.controlplane.tenants.records import TenantRecord


class TbtCap(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant whose TBT target is not planned for at present."""

    since_s: float
    """Unix time."""
    tenant_since_ms: int
    """When the tenant was created: another of the same name is not capped."""
    tbt_s: float
    """Steps are planned for this target."""
    cost_ratio: float
    """What its own cost when it was capped: a share of the time."""

    def holds_for(self, tenant: TenantRecord | None) -> bool:
        """Whether the tenant is the one that was capped, and still has a limit of what it may cost."""
        return (
            tenant is not None
            and tenant.since_ms == self.tenant_since_ms
            and tenant.max_tbt_cost_ratio is not None
        )


TbtCaps = Mapping[str, TbtCap]
"""By tenant."""
