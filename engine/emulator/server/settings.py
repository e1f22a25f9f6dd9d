"""The engine's side of a settings change: check it, put it in force, acknowledge its version."""

from __future__ import annotations

from pdmuxd.engine.core.errors import PartitionError, PolicyError, ProfileError, SloError
from pdmuxd.engine.emulator.requests import TenantTarget
from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.link.messages import Ack, EngineSettings
from pdmuxd.engine.link.targets import slo_of


def apply_settings(driver: WallClockDriver, settings: EngineSettings) -> Ack:
    """Put settings in force for waiting, running and later requests; a refusal changes nothing.

    Versions only grow: an older one is refused, the present one is put in force again.
    """
    in_force = driver.settings_version
    if settings.version < in_force:
        return Ack(version=settings.version, error=f"settings version {in_force} is already in force")
    try:
        slos = {
            each.tenant: TenantTarget(slo=slo_of(each), version=each.slo_version) for each in settings.tenants
        }
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
