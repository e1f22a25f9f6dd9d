"""What a configuration would change of what is stored: pure, in values and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.scheduling import Scheduling, write_pairs
from pdmuxd.controlplane.tenants.prices import EVERY, PriceList, as_text
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.controlplane.tenants.tenant_fields import TenantChanges
from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.core.slo import Slo

Action = Literal["create", "change", "delete"]
Value = str | float | bool | None
TENANT_FIELDS = (*TenantChanges.__annotations__, "slo", "limits")
"""What an operator sets of a tenant."""


class UnknownTenantError(InvalidValueError):
    """A price of a tenant that does not exist, and is not made either."""

    def __init__(self, tenant: str) -> None:
        super().__init__("prices", f"there is no tenant {tenant!a:.80}")
        self.tenant = tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All that a configuration holds. What a tenant does not name has been given its default."""

    tenants: Mapping[str, TenantRecord]
    """By name; versions and the time of creation count for nothing."""
    scheduling: Scheduling | None = None
    """None: the configuration says nothing of the policy, and it stays."""
    prices: PriceList | None = None
    """None: it says nothing of prices, and they stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field. The name of a field within another is written with a point: `slo.tbt_ms`."""

    field: str
    before: Value
    after: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantChange:
    """One tenant that does not stay as it is."""

    name: str
    before: TenantRecord | None
    after: TenantRecord | None
    differences: tuple[Difference, ...]

    @property
    def action(self) -> Action:
        if self.before is None:
            return "create"
        return "delete" if self.after is None else "change"

    def differs(self, field: str) -> bool:
        """Whether a field of the record, such as `slo`, becomes another."""
        return any(one.field.partition(".")[0] == field for one in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All differences; empty if things are as they are wanted."""

    tenants: tuple[TenantChange, ...] = ()
    """By name."""
    scheduling: Scheduling | None = None
    """The one that is wanted, if it is another."""
    scheduling_differences: tuple[Difference, ...] = ()
    prices: PriceList | None = None
    """The list that is wanted, if it is another."""
    price_differences: tuple[Difference, ...] = ()
    unmanaged: tuple[str, ...] = ()
    """Tenants that the configuration does not name, and that stay."""

    @property
    def is_empty(self) -> bool:
        return not self.tenants and self.scheduling is None and self.prices is None

    def of(self, action: Action) -> list[TenantChange]:
        return [one for one in self.tenants if one.action == action]

    def summary(self) -> str:
        counts = [(len(self.of(action)), done) for action, done in _DONE.items()]
        said = [f"{count} {'tenant' if count == 1 else 'tenants'} {done}" for count, done in counts if count]
        if self.scheduling is not None:
            said.append("the policy changed")
        if self.prices is not None:
            said.append("the prices changed")
        return ", ".join(said) or "nothing differs"


_DONE: Mapping[Action, str] = {"create": "created", "change": "changed", "delete": "deleted"}


def plan(before: Config, wanted: Config, *, prune: bool) -> Plan:
    """Compare. With `prune`, tenants that are not wanted are deleted; else they stay.

    Raises: UnknownTenantError for a price.
    """
    changes = [_tenant(name, before.tenants.get(name), record) for name, record in wanted.tenants.items()]
    others = [name for name in before.tenants if name not in wanted.tenants]
    if prune:
        changes += [_tenant(name, before.tenants[name], None) for name in others]
    differences: tuple[Difference, ...] = ()
    if before.scheduling is not None and wanted.scheduling is not None:
        differences = _differences(_of_policy(before.scheduling), _of_policy(wanted.scheduling))
    repriced: tuple[Difference, ...] = ()
    if before.prices is not None and wanted.prices is not None:
        repriced = _differences(_of_prices(before.prices), _of_prices(wanted.prices))
        # A tenant that is gone keeps the price that it had: what it used is still billed.
        known = {EVERY, *wanted.tenants, *before.tenants, *(price.tenant for price in before.prices.prices)}
        for price in wanted.prices.prices:
            if price.tenant not in known:
                raise UnknownTenantError(price.tenant)
    return Plan(
        tenants=tuple(sorted((one for one in changes if one.differences), key=lambda one: one.name)),
        scheduling=wanted.scheduling if differences else None,
        scheduling_differences=differences,
        prices=wanted.prices if repriced else None,
        price_differences=repriced,
        unmanaged=() if prune else tuple(sorted(others)),
    )


def fields_of(tenant: TenantRecord) -> dict[str, Value]:
    """What an operator sets of a tenant, in the units of REST."""
    fields: dict[str, Value] = {name: getattr(tenant, name) for name in TenantChanges.__annotations__}
    fields["model_aliases"] = ", ".join(tenant.model_aliases) or None
    fields |= {f"slo.{name}": value for name, value in targets_ms(tenant.slo).items()}
    return fields | {f"limits.{one.name}": f"{one.value} ({one.action})" for one in tenant.limits}


def targets_ms(slo: Slo) -> dict[str, float | None]:
    """Targets under their names in REST."""
    return {
        "ttft_fixed_ms": to_ms(slo.ttft_fixed_s),
        "ttft_per_1k_new_tokens_ms": to_ms(slo.ttft_per_1k_new_tokens_s),
        "tbt_ms": to_ms(slo.tbt_s),
        "attainment_ratio": slo.attainment_ratio,
        "e2e_ms": None if slo.e2e_s is None else to_ms(slo.e2e_s),
    }


def in_words(differences: tuple[Difference, ...], action: Action) -> str:
    """The fields with their values: `slo.tbt_ms 40 -> 30`."""
    if action == "change":
        return ", ".join(f"{one.field} {_shown(one.before)} -> {_shown(one.after)}" for one in differences)
    return ", ".join(f"{one.field} {_shown(one.after)}" for one in differences if one.after is not None)


def _tenant(name: str, before: TenantRecord | None, after: TenantRecord | None) -> TenantChange:
    return TenantChange(
        name=name,
        before=before,
        after=after,
        differences=_differences(
            {} if before is None else fields_of(before), {} if after is None else fields_of(after)
        ),
    )


def _of_policy(scheduling: Scheduling) -> dict[str, Value]:
    pairs = scheduling.partitions
    return {
        "policy": scheduling.policy,
        "partitions": None if pairs is None else write_pairs(pairs),
        "shadow": scheduling.shadow,
    }


def _of_prices(found: PriceList) -> dict[str, Value]:
    """A field for each price; numbers as texts, which is what they are over REST."""
    fields: dict[str, Value] = {"currency": found.currency}
    for price in found.prices:
        of = f"{price.tenant or 'all tenants'}, {price.model or 'all models'}"
        numbers = (price.input, price.cached, price.output)
        fields[of] = " / ".join(map(as_text, numbers))
    return fields


def _differences(before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[Difference, ...]:
    names = (*after, *(name for name in before if name not in after))
    return tuple(
        Difference(field=name, before=before.get(name), after=after.get(name))
        for name in names
        if name not in before or name not in after or before[name] != after[name]
    )


def _shown(value: Value) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.15g}" if isinstance(value, float) else str(value)
