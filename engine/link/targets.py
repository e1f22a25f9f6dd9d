"""A tenant's targets, from the link's message to the core's value."""

from __future__ import annotations

from pdmuxd.engine.core.errors import SloError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.messages import TenantSlo


def slo_of(tenant: TenantSlo) -> Slo:
    """Raises: SloError naming the tenant, the field and its range."""
    try:
        return Slo(
            ttft_fixed_s=tenant.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=tenant.ttft_per_1k_new_tokens_s,
            tbt_s=tenant.tbt_s,
            attainment_ratio=tenant.attainment_ratio,
            e2e_s=tenant.e2e_s,
        )
    except SloError as error:
        raise SloError(f"tenant {tenant.tenant}: {error}") from error
