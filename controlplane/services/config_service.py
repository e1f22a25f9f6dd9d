"""Configurations: all that operators set, read and put in force as one, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlmodel import Session, col

from pdmuxd.controlplane.database.audit import APPLIED
from pdmuxd.controlplane.database.transactions import check_expected
from pdmuxd.controlplane.node.scheduling import add_revision, as_told, current_scheduling
from pdmuxd.controlplane.services.config_plan import TENANT_FIELDS, Config, Plan, TenantChange, plan
from pdmuxd.controlplane.services.store import Change, Store
from pdmuxd.controlplane.tenants.limit_rows import TenantLimitRow
from pdmuxd.controlplane.tenants.prices import current_prices, require_prices, write_prices
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.controlplane.tenants.slo_revisions import SloRevisionRow
from pdmuxd.controlplane.tenants.tenant_fields import TenantChanges, check
from pdmuxd.controlplane.tenants.tenants import Tenant, TenantRepository, TenantRow, in_batches

_WHAT = "the configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan with the settings version that it starts from, or, once it was carried out, leads to."""

    version: int
    plan: Plan


class Configs:
    """Any method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def current(self) -> tuple[int, Config]:
        """What is stored now, with its settings version."""
        with self._store.transaction() as session:
            version = self._store.version_in(session)
            return version, _read(session)

    def plan(self, wanted: Config, *, prune: bool, expected_version: int | None = None) -> Planned:
        """What `apply` would do now. Raises: StaleVersionError."""
        version, before = self.current()
        check_expected(expected_version, version, _WHAT)
        return Planned(version=version, plan=plan(before, wanted, prune=prune))

    def apply(self, wanted: Config, *, prune: bool, expected_version: int | None = None) -> Planned:
        """Make it so: all of it or nothing, with one settings version and one entry in the audit.

        Where nothing differs nothing is written. Raises: StaleVersionError.
        """
        with self._store.change() as change:
            check_expected(expected_version, change.version - 1, _WHAT)
            before = _read(change.session)
            found = plan(before, wanted, prune=prune)
            change.is_needless = found.is_empty
            if not found.is_empty:
                self._write(change, found)
        version = change.version - 1 if change.is_needless else change.version
        return Planned(version=version, plan=found)

    def put_tenant(self, wanted: TenantRecord, *, expected_version: int | None = None) -> tuple[Tenant, bool]:
        """Make one tenant so, all of it; the tenant, and whether it is new.

        Raises: InvalidValueError for its name, StaleVersionError.
        """
        name = wanted.name
        check("name", name)
        with self._store.change() as change:
            before = change.tenants.named([name]).get(name)
            check_expected(expected_version, 0 if before is None else before.version, f"tenant {name}")
            old = {} if before is None else {name: before.record()}
            found = plan(Config(tenants=old), Config(tenants={name: wanted}), prune=False)
            change.is_needless = found.is_empty
            _create(change, found.of("create"))
            _update(change, found.of("change"))
            change.tenants_changed.add(name)
            after = before if before is not None and found.is_empty else change.tenants.get(name)
            if before is None:
                change.audit("tenant.create", subject=name, tenant=name, after=after.record())
            else:
                told = {"before": before.record(), "after": after.record()}
                change.audit("tenant.update", subject=name, tenant=name, **told)
                if after.slo != before.slo:
                    change.audit("slo.set", subject=name, tenant=name, before=before.slo, after=after.slo)
        return after, before is None

    def _write(self, change: Change, found: Plan) -> None:
        gone, session = [one.name for one in found.of("delete")], change.session
        if gone:
            self._delete(change, gone)
        # Before the tenants: limits of money need prices. The plan knows that tenants with prices will exist.
        priced = None
        if found.prices is not None:
            after = replace(found.prices, version=change.version)
            priced = write_prices(session, current_prices(session), after)
            change.prices_changed = True
        _create(change, found.of("create"))
        _update(change, found.of("change"))
        change.tenants_changed.update(one.name for one in found.tenants)
        told: list[dict[str, Any]] = [
            {"tenants": {one.name: _told(one, old) for one in found.tenants}} for old in (True, False)
        ]
        if found.scheduling is not None:
            revision = current_scheduling(session)
            told[0]["policy"] = as_told(revision)
            told[1]["policy"] = as_told(add_revision(change, revision, found.scheduling))
        if priced is not None:
            told[0]["prices"], told[1]["prices"] = priced
        change.audit(APPLIED, subject=found.summary(), before=told[0], after=told[1])

    def _delete(self, change: Change, names: Sequence[str]) -> None:
        """The database deletes keys, targets and limits with their tenant."""
        gone = frozenset(names)
        # Of another process's changes the directory knows nothing, but then it is read as a whole anyway.
        keys = self._store.directory.keys.items()
        change.keys_changed.update({sha256: None for sha256, key in keys if key.tenant in gone})
        for some in in_batches(names):
            change.session.connection().execute(delete(TenantRow).where(col(TenantRow.name).in_(some)))


def _read(session: Session) -> Config:
    return Config(
        tenants=TenantRepository(session).records(),
        scheduling=current_scheduling(session).scheduling,
        prices=current_prices(session),
    )


def _told(change: TenantChange, is_before: bool) -> dict[str, object] | None:
    """What the audit is told: all of a tenant that is created or deleted, of another what differs."""
    record = change.before if is_before else change.after
    if record is None:
        return None
    names = [name for name in TENANT_FIELDS if change.differs(name)]
    return {name: getattr(record, name) for name in names}


def _create(change: Change, created: Sequence[TenantChange]) -> None:
    if not created:
        return
    records = [one.after for one in created if one.after is not None]
    rows = [
        {"name": one.name, "created_at": change.now, "settings_version": change.version, **_columns(one)}
        for one in records
    ]
    change.session.connection().execute(insert(_table(TenantRow)), rows)
    ids = _ids(change.session, [one.name for one in records])
    _add_targets(change, [(ids[one.name], 1, one) for one in records])
    _add_limits(change.session, [(ids[one.name], one) for one in records])


def _update(change: Change, changed: Sequence[TenantChange]) -> None:
    if not changed:
        return
    session, ids = change.session, _ids(change.session, [one.name for one in changed])
    rows, targets, limits = [], [], []
    for one in changed:
        before, after, tenant_id = one.before, one.after, ids[one.name]
        if before is None or after is None:
            continue
        if any(one.differs(name) for name in TENANT_FIELDS if name != "slo"):
            version = {"settings_version": change.version}
            rows.append(_columns(after) | version | {"id": tenant_id})
        if one.differs("slo"):
            targets.append((tenant_id, before.slo_version + 1, after))
        if one.differs("limits"):
            limits.append((tenant_id, after))
    if rows:
        session.execute(update(TenantRow), rows)
    for some in in_batches(limits):
        theirs = col(TenantLimitRow.tenant_id).in_([tenant_id for tenant_id, _ in some])
        session.connection().execute(delete(TenantLimitRow).where(theirs))
    _add_targets(change, targets)
    _add_limits(session, limits)


def _columns(record: TenantRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in TenantChanges.__annotations__}


def _add_targets(change: Change, targets: Iterable[tuple[int, int, TenantRecord]]) -> None:
    rows = [
        {
            "tenant_id": tenant_id,
            "version": version,
            "ttft_fixed_s": record.slo.ttft_fixed_s,
            "ttft_per_1k_new_tokens_s": record.slo.ttft_per_1k_new_tokens_s,
            "tbt_s": record.slo.tbt_s,
            "attainment_ratio": record.slo.attainment_ratio,
            "e2e_s": record.slo.e2e_s,
            "settings_version": change.version,
            "created_at": change.now,
        }
        for tenant_id, version, record in targets
    ]
    if rows:
        change.session.connection().execute(insert(_table(SloRevisionRow)), rows)


def _add_limits(session: Session, tenants: Iterable[tuple[int, TenantRecord]]) -> None:
    tenants = list(tenants)
    require_prices(session, (limit for _, record in tenants for limit in record.limits))
    rows = [
        {"tenant_id": tenant_id, "name": one.name, "value": one.value, "action": one.action}
        for tenant_id, record in tenants
        for one in record.limits
    ]
    if rows:
        session.connection().execute(insert(_table(TenantLimitRow)), rows)


def _ids(session: Session, names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in in_batches(names):
        statement = select(col(TenantRow.name), col(TenantRow.id)).where(col(TenantRow.name).in_(some))
        found.update((name, tenant_id) for name, tenant_id in session.execute(statement))
    return found


def _table(row: type[Any]) -> Any:  # noqa: ANN401 - the library's own
    return row.__table__
