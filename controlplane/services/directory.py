"""One frozen picture of all tenants, keys and targets: what the gateway and the engine work from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdmuxd.controlplane.node.scheduling import BEFORE_ANY, SchedulingRevision
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.tenants.expiry import has_ended
from pdmuxd.controlplane.tenants.prices import NO_PRICES, PriceList
from pdmuxd.controlplane.tenants.records import AdminTokenRecord, Identity, KeyRecord, Scope, TenantRecord
from pdmuxd.engine.core.errors import KeyScopeError, TenantDisabledError, UnknownKeyError
from pdmuxd.engine.link.messages import EngineSettings
from pdmuxd.engine.link.predictors import Predictors


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySnapshot:
    """Everything of one `version` (the global settings version); immutable, so safe to share.

    `tenants` is by name. `keys` and `admin_tokens` are by the SHA-256 of their secrets, without
    those that were revoked.
    """

    version: int
    tenants: Mapping[str, TenantRecord]
    keys: Mapping[str, KeyRecord] = field(default_factory=dict, repr=False)
    admin_tokens: Mapping[str, AdminTokenRecord] = field(default_factory=dict, repr=False)
    prices: PriceList = NO_PRICES
    predictors: Predictors | None = field(default=None, repr=False)
    """Of the profile in force; None while it is the engine's own."""
    scheduling: SchedulingRevision = BEFORE_ANY

    def authenticate(self, secret: str, *, scope: Scope = "serve", now_s: float | None = None) -> Identity:
        """Find the tenant of an API key that may be used for `scope`.

        The look-up is by digest: its timing tells about SHA-256 values, which lead to no key.
        Raises: UnknownKeyError (401), TenantDisabledError and KeyScopeError (403).
        """
        identity = self.find_key(secret, now_s=now_s)
        if scope not in identity.key.scopes:
            raise KeyScopeError(
                f"key {identity.key.key_id} may not {scope}; its scopes are "
                f"{', '.join(sorted(identity.key.scopes))}"
            )
        if not identity.tenant.enabled:
            raise TenantDisabledError(f"tenant {identity.name} is disabled")
        return identity

    def find_key(self, secret: str, *, now_s: float | None = None) -> Identity:
        """The tenant of a key, whatever the key may be used for. Raises: UnknownKeyError."""
        return self.find_key_by(digest(secret), now_s=now_s)

    def find_key_by(self, sha256: str, *, now_s: float | None = None) -> Identity:
        """The same of the digest of a key. Raises: UnknownKeyError."""
        key = self.keys.get(sha256)
        if key is None:
            raise UnknownKeyError("the API key is unknown or was revoked")
        if has_ended(key.expires_at_s, now_s):
            raise UnknownKeyError(f"the API key {key.key_id} has expired")
        return Identity(tenant=self.tenants[key.tenant], key=key)

    def knows_key(self, secret: str) -> bool:
        """Whether this is an API key that was not revoked and has not expired."""
        key = self.keys.get(digest(secret))
        return key is not None and not has_ended(key.expires_at_s)

    def find_admin_token(self, secret: str, *, now_s: float | None = None) -> AdminTokenRecord | None:
        """The admin token of this secret; None if there is none, or it has expired."""
        return self.find_admin_token_by(digest(secret), now_s=now_s)

    def find_admin_token_by(self, sha256: str, *, now_s: float | None = None) -> AdminTokenRecord | None:
        """The same of the digest of a secret."""
        token = self.admin_tokens.get(sha256)
        return None if token is None or has_ended(token.expires_at_s, now_s) else token

    def engine_settings(self, policy: str) -> EngineSettings:
        """What the engine needs of this snapshot; disabled tenants too, for what they have in flight.

        `policy`: of the settings, for while none was set.
        """
        scheduling = self.scheduling.scheduling
        return EngineSettings(
            version=self.version,
            policy=scheduling.policy or policy,
            partitions=scheduling.partitions,
            shadow=scheduling.shadow,
            predictors=self.predictors,
            tenants=tuple(tenant.for_engine() for _, tenant in sorted(self.tenants.items())),
        )
