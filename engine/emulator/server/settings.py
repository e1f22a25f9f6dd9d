"""The engine's side of a settings change: check it, put it in force, acknowledge its version."""

from __future__ import annotations

from pdmuxd.engine.core.errors import PartitionError, PolicyError, ProfileError, SloError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.requests import TenantTarget
from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.link.messages import Ack, EngineSettings, TenantSlo


def apply_settings(driver: WallClockDriver, settings: EngineSettings) -> Ack:
    """Put settings in force for waiting, running and later requests; a refusal changes nothing.

    Versions only grow: an older one is refused, the present one is put in force again.
    """
    in_force = driver.settings_version
    if settings.version < in_force:
        return Ack(version=settings.version, error=f"settings version {in_force} is already in force")
    try:
        slos = {each.tenant: _target(each) for each in settings.tenants}
        driver.apply_settings(
            version=settings.version,
            policy=settings.policy,
            slos=slos,
            predictors=settings.predictors,
            partitions=settings.partitions,
        )
    except (PolicyError, PartitionError, ProfileError, SloError) as error:
        return Ack(version=settings.version, error=str(error))
    return Ack(version=settings.version)


def _target(tenant: TenantSlo) -> TenantTarget:
    try:
        slo = Slo(
            ttft_fixed_s=tenant.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=tenant.ttft_per_1k_new_tokens_s,
            tbt_s=tenant.tbt_s,
            attainment_ratio=tenant.attainment_ratio,
        )
    except SloError as error:
        raise SloError(f"tenant {tenant.tenant}: {error}") from error
    return TenantTarget(slo=slo, version=tenant.slo_version)
