"""Tenants, API keys and admin tokens as those who serve see them: frozen, without their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pdmuxd.controlplane.database.callers import Role
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.engine.core.slo import (
    DEFAULT_LATE_ACTION,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_WEIGHT,
    LateAction,
    PriorityClass,
    Slo,
)
from pdmuxd.engine.link.messages import TenantSlo

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
    """The share of everybody's prefill time that its TBT target may cost; None: any share."""
    limits: tuple[Limit, ...] = ()
    model_aliases: tuple[str, ...] = ()
    """Other names of the served model in its requests; with * at the end all that begin so."""

    def knows_model(self, name: str) -> bool:
        """Whether one of its aliases is this name, or the beginning of it."""
        return any(
            name.startswith(alias[:-1]) if alias.endswith("*") else name == alias
            for alias in self.model_aliases
        )

    def for_engine(self) -> TenantSlo:
        return TenantSlo(
            tenant=self.name,
            ttft_fixed_s=self.slo.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=self.slo.ttft_per_1k_new_tokens_s,
            tbt_s=self.slo.tbt_s,
            attainment_ratio=self.slo.attainment_ratio,
            e2e_s=self.slo.e2e_s,
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
    """The tenant whose key a call carries."""

    tenant: TenantRecord
    key: KeyRecord

    @property
    def name(self) -> str:
        return self.tenant.name
