"""One frozen picture of all tenants, keys and targets: what the gateway and the engine work from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdmuxd.controlplane.credentials import digest
from pdmuxd.engine.core.errors import TenantDisabledError, UnknownKeyError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.messages import EngineSettings, TenantSlo
from pdmuxd.engine.link.predictors import Predictors


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    """A tenant as the data plane sees it."""

    name: str
    enabled: bool
    slo: Slo
    slo_version: int
    max_in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySnapshot:
    """Everything of one `version` (the global settings version); immutable, so safe to share.

    `tenants` is by name. `key_digests` maps the SHA-256 of each key that was not revoked to its tenant.
    """

    version: int
    tenants: Mapping[str, TenantRecord]
    key_digests: Mapping[str, str] = field(repr=False)
    predictors: Predictors | None = field(default=None, repr=False)
    """Of the profile in force; None while it is the engine's own."""

    def authenticate(self, secret: str) -> TenantRecord:
        """Find the tenant of an API key.

        The look-up is by digest: its timing tells about SHA-256 values, which lead to no key.
        Raises: UnknownKeyError (401), TenantDisabledError (403).
        """
        name = self.key_digests.get(digest(secret))
        if name is None:
            raise UnknownKeyError("the API key is unknown or was revoked")
        tenant = self.tenants[name]
        if not tenant.enabled:
            raise TenantDisabledError(f"tenant {name} is disabled")
        return tenant

    def engine_settings(self, policy: str) -> EngineSettings:
        """What the engine needs of this snapshot; disabled tenants too, for what they have in flight."""
        return EngineSettings(
            version=self.version,
            policy=policy,
            predictors=self.predictors,
            tenants=tuple(
                TenantSlo(
                    tenant=tenant.name,
                    ttft_fixed_s=tenant.slo.ttft_fixed_s,
                    ttft_per_1k_new_tokens_s=tenant.slo.ttft_per_1k_new_tokens_s,
                    tbt_s=tenant.slo.tbt_s,
                    attainment_ratio=tenant.slo.attainment_ratio,
                    slo_version=tenant.slo_version,
                )
                for _, tenant in sorted(self.tenants.items())
            ),
        )
