"""One frozen picture of all tenants, keys and targets: what the gateway and the engine work from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdmuxd.controlplane.callers import Role
from pdmuxd.controlplane.credentials import digest
from pdmuxd.controlplane.limit_values import Limit
from pdmuxd.controlplane.scheduling import BEFORE_ANY, SchedulingRevision
from pdmuxd.engine.core.errors import KeyScopeError, TenantDisabledError, UnknownKeyError
from pdmuxd.engine.core.slo import (
    DEFAULT_LATE_ACTION,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_WEIGHT,
    LateAction,
    PriorityClass,
    Slo,
)
from pdmuxd.engine.link.messages import EngineSettings, TenantSlo
from pdmuxd.engine.link.predictors import Predictors

Scope = Literal["serve", "read", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    """A tenant as the data plane sees it."""

    name: str
    enabled: bool
    slo: Slo
    slo_version: int
    max_in_flight: int
    since_ms: int = field(default=0, repr=False)
    """When it was created, in milliseconds since 1970; it distinguishes this tenant from an earlier one of
    the same name."""
    cache_group: str | None = None
    """Tenants of one group find each other's prompts in the prefix cache; None: nobody's but its own."""
    priority_class: PriorityClass = DEFAULT_PRIORITY_CLASS
    weight: float = DEFAULT_WEIGHT
    """Its part of what the active tenants share, in relation to their weights."""
    max_wait_ms: int | None = None
    """The longest wait in the queue; None: as long as the engine lets any request wait."""
    late_action: LateAction = DEFAULT_LATE_ACTION
    count_cached_tokens: bool = False
    """Whether limits of tokens count those that were found in the prefix cache."""
    max_tbt_cost_ratio: float | None = None
    """The share of the prefill time that its TBT target may cost all; None: any."""
    limits: tuple[Limit, ...] = ()

    def for_engine(self) -> TenantSlo:
        """What an engine needs of it."""
        return TenantSlo(
            tenant=self.name,
            ttft_fixed_s=self.slo.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=self.slo.ttft_per_1k_new_tokens_s,
            tbt_s=self.slo.tbt_s,
            attainment_ratio=self.slo.attainment_ratio,
            slo_version=self.slo_version,
            priority_class=self.priority_class,
            weight=self.weight,
            max_wait_ms=self.max_wait_ms,
            late_action=self.late_action,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """An API key that was not revoked, as the data plane sees it."""

    key_id: str
    tenant: str
    scopes: frozenset[Scope]
    expires_at_s: float | None
    """Unix time from which on it is refused; None if it does not expire."""
    limits: tuple[Limit, ...] = ()
    """Of this key, beside those of its tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTokenRecord:
    """An admin token that was not revoked, as the admin plane sees it."""

    name: str
    role: Role
    expires_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose key a call carries."""

    tenant: TenantRecord
    key: KeyRecord

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.tenant.name


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
        key = self.keys.get(digest(secret))
        if key is None:
            raise UnknownKeyError("the API key is unknown or was revoked")
        if has_ended(key.expires_at_s, now_s):
            raise UnknownKeyError(f"the API key {key.key_id} has expired")
        return Identity(tenant=self.tenants[key.tenant], key=key)

    def find_admin_token(self, secret: str, *, now_s: float | None = None) -> AdminTokenRecord | None:
        """The admin token of this secret; None if there is none, or it has expired."""
        token = self.admin_tokens.get(digest(secret))
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


def has_ended(expires_at_s: float | None, now_s: float | None = None) -> bool:
    """Whether a key or token of that end is over; by the wall clock unless `now_s` (Unix time) is given."""
    return expires_at_s is not None and (time.time() if now_s is None else now_s) >= expires_at_s
