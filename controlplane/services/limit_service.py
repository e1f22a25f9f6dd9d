"""Limits and the use of tokens: rows, repository, and what can be done to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import cast

from sqlalchemy import delete
from sqlmodel import Session, col, select

from pdmuxd.controlplane.database.transactions import check_expected, upsert_into
from pdmuxd.controlplane.services.limit_shares import spend
from pdmuxd.controlplane.services.store import Store
from pdmuxd.controlplane.tenants.api_keys import ApiKeyRepository, ApiKeyRow
from pdmuxd.controlplane.tenants.limit_rows import KeyLimitRow, TenantLimitRow, key_limits
from pdmuxd.controlplane.tenants.limit_values import Limit, LimitName, check_limit
from pdmuxd.controlplane.tenants.prices import require_prices
from pdmuxd.controlplane.tenants.records import KeyRecord
from pdmuxd.controlplane.tenants.tenants import Tenant, TenantRepository, TenantRow
from pdmuxd.controlplane.tenants.token_use import Tokens, TokenUseRow, UseOf
from pdmuxd.engine.core.errors import NotFoundError

USE_AT_ONCE = 500
KEPT_DAYS = 62
"""Token use is kept for so many days: a budget of this month needs them, and the month before."""


class Limits:
    """Limits of tenants and keys; any method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def change_tenant(
        self,
        tenant: str,
        changes: Mapping[LimitName, Limit | None],
        *,
        expected_version: int | None = None,
    ) -> Tenant:
        """Set what is given, remove what is None, leave the rest.

        Raises: NotFoundError, InvalidValueError; StaleVersionError if `expected_version` does not hold.
        """
        with self._store.change() as change:
            before = change.tenants.get(tenant)
            check_expected(expected_version, before.version, f"tenant {tenant}")
            row = change.tenants.row(tenant)
            for name, limit in changes.items():
                found = change.session.get(TenantLimitRow, (row.id, name))
                if limit is None:
                    if found is not None:
                        change.session.delete(found)
                    continue
                check_limit(limit, of_key=False)
                found = found or TenantLimitRow(tenant_id=row.id or 0, name=name, value=0, action="")
                found.value, found.action = limit.value, limit.action
                change.session.add(found)
            change.session.flush()
            require_prices(change.session, (limit for limit in changes.values() if limit is not None))
            change.is_needless = change.tenants.get(tenant).limits == before.limits
            row.settings_version = change.version
            after = change.tenants.get(tenant)
            change.tenants_changed.add(tenant)
            change.audit(
                "limits.set",
                subject=tenant,
                tenant=tenant,
                before=as_mapping(before.limits),
                after=as_mapping(after.limits),
            )
        return before if change.is_needless else after

    def change_key(
        self,
        key_id: str,
        changes: Mapping[LimitName, Limit | None],
        *,
        expected_version: int | None = None,
    ) -> tuple[Limit, ...]:
        """The same for one key; the answer is its limits. Raises: as `change_tenant`."""
        with self._store.change() as change:
            row, tenant = change.keys.get(key_id)
            check_expected(expected_version, row.settings_version, f"key {key_id}")
            before = key_limits(change.session, key_id)
            for name, limit in changes.items():
                found = change.session.get(KeyLimitRow, (key_id, name))
                if limit is None:
                    if found is not None:
                        change.session.delete(found)
                    continue
                check_limit(limit, of_key=True)
                found = found or KeyLimitRow(key_id=key_id, name=name, value=0, action="")
                found.value, found.action = limit.value, limit.action
                change.session.add(found)
            change.session.flush()
            require_prices(change.session, (limit for limit in changes.values() if limit is not None))
            after = key_limits(change.session, key_id)
            change.is_needless = after == before
            row.settings_version = change.version
            change.keys_changed[row.secret_sha256] = change.keys.record(row, tenant)
            change.audit(
                "limits.set",
                subject=key_id,
                tenant=tenant,
                before=as_mapping(before),
                after=as_mapping(after),
            )
        return after

    def of_key(
        self, key_id: str, *, of_tenant: str | None = None
    ) -> tuple[ApiKeyRow, Tenant, KeyRecord | None]:
        """A key with its tenant, both with their limits. Raises: NotFoundError."""
        with self._store.transaction() as session:
            keys = ApiKeyRepository(session)
            row, tenant = keys.get(key_id)
            if of_tenant is not None and tenant != of_tenant:
                raise NotFoundError(f"there is no key {key_id[:40]!r}")
            return row, TenantRepository(session).get(tenant), keys.record(row, tenant)

    # What was used

    def add_use(self, uses: Mapping[UseOf, Tokens], spent: Sequence[tuple[str, str, int]] = ()) -> None:
        """Add to what is stored. Of tenants that are gone nothing is kept. Raises no settings version.

        `spent` is by how much shares of budgets, by (subject, name), become smaller by it.
        """
        if not uses:
            return
        with self._store.writing() as session:
            ids = _ids(session, {use.tenant for use in uses})
            # In one order for all nodes, so that none waits for a row of another that waits for it.
            for use in sorted(uses, key=lambda one: (one.tenant, one.key_id, one.day)):
                if (tenant_id := ids.get(use.tenant)) is not None:
                    _add(session, tenant_id, use, uses[use])
            spend(session, self._store.node, spent)
            session.commit()

    def use_since(self, first: date, *, tenants: Sequence[str] | None = None) -> dict[UseOf, Tokens]:
        """What was used from a day on, by all tenants or by these, at most `USE_AT_ONCE`."""
        statement = (
            select(TokenUseRow, TenantRow.name)
            .join(TenantRow, col(TenantRow.id) == col(TokenUseRow.tenant_id))
            .where(col(TokenUseRow.day) >= first)
        )
        if tenants is not None:
            statement = statement.where(col(TenantRow.name).in_(tenants))
        with self._store.transaction() as session:
            return {
                UseOf(name, row.key_id, row.day): Tokens(
                    input_tokens=row.input_tokens,
                    cached_tokens=row.cached_tokens,
                    output_tokens=row.output_tokens,
                    cost_nanos=row.cost_nanos,
                )
                for row, name in session.exec(statement)
            }

    def forget_use(self) -> int:
        """Delete the use of days that no budget needs any more; how many rows."""
        first = self._store.clock().date() - timedelta(days=KEPT_DAYS)
        with self._store.transaction() as session:
            gone = session.connection().execute(delete(TokenUseRow).where(col(TokenUseRow.day) < first))
            session.commit()
            return gone.rowcount


def as_mapping(limits: Iterable[Limit]) -> dict[str, dict[str, object]]:
    """Limits as the audit keeps them."""
    return {limit.name: {"value": limit.value, "action": limit.action} for limit in limits}


def _ids(session: Session, names: set[str]) -> dict[str, int]:
    found = session.exec(select(TenantRow.name, TenantRow.id).where(col(TenantRow.name).in_(names)))
    return {name: cast(int, tenant_id) for name, tenant_id in found}


def _add(session: Session, tenant_id: int, use: UseOf, tokens: Tokens) -> None:
    """Add in one statement: another node may make the day's row at the same moment."""
    table = TokenUseRow.__table__  # type: ignore[attr-defined]
    added = {name: getattr(tokens, name) for name in Tokens.__slots__}
    row = {"tenant_id": tenant_id, "key_id": use.key_id, "day": use.day, **added}
    session.connection().execute(upsert_into(session, table, added=tuple(added)), [row])
