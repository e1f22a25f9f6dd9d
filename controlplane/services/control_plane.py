"""What can be done to tenants and targets; the REST routes and the command line call the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Unpack

from sqlalchemy import Engine

from pdmuxd.controlplane.database.audit import AuditEntry, AuditRepository, log_entry
from pdmuxd.controlplane.database.callers import now_acting
from pdmuxd.controlplane.database.transactions import check_expected
from pdmuxd.controlplane.node.scheduling import SchedulingService
from pdmuxd.controlplane.profiles.service import Profiles
from pdmuxd.controlplane.services.config_service import Configs
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.services.key_service import Keys
from pdmuxd.controlplane.services.limit_service import Limits
from pdmuxd.controlplane.services.store import Store, Subscriber, utc_now
from pdmuxd.controlplane.tenants.admin_tokens import AdminTokens
from pdmuxd.controlplane.tenants.prices import Prices
from pdmuxd.controlplane.tenants.slo_revisions import SloRevision
from pdmuxd.controlplane.tenants.tenant_fields import TenantChanges
from pdmuxd.controlplane.tenants.tenants import ANY_TENANT, Tenant, TenantFilter, TenantRepository
from pdmuxd.engine.core.slo import DEFAULT_SLO, Slo

HISTORY_LIMIT = 100
AUDIT_LIMIT = 100
FORGOTTEN_AT_ONCE = 500
"""Entries of the audit in one transaction: some 10 ms in which no change is made."""


class ControlPlane:
    """Tenants and targets in one database, with keys, admin tokens and profiles beside them.

    Safe to call from several threads. Every change raises the settings version by one in its own
    transaction and is recorded in the audit; changes run one after the other. A change that raises has
    changed nothing. Any method may raise StoreError.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], datetime] = utc_now,
        recorded: Callable[[AuditEntry], None] = lambda _: None,
    ) -> None:
        """`recorded` is told of each change after it was committed, in the thread that made it."""
        self.store = Store(engine, clock=clock, recorded=recorded)
        self.keys = Keys(self.store)
        self.limits = Limits(self.store)
        self.configs = Configs(self.store)
        self.admin_tokens = AdminTokens(self.store)
        self.prices = Prices(self.store)

    @cached_property
    def profiles(self) -> Profiles:
        """Profiles; those of their changes that concern the engine are published as all others."""
        return Profiles(self.store)

    @cached_property
    def scheduling(self) -> SchedulingService:
        """The policy, its splits and its shadow."""
        return SchedulingService(self.store)

    # Tenants

    def create_tenant(self, name: str, slo: Slo = DEFAULT_SLO, **fields: Unpack[TenantChanges]) -> Tenant:
        """Add an enabled tenant, with no key yet. Raises: InvalidValueError, ConflictError if it exists."""
        with self.store.change() as change:
            change.tenants.add(name, fields, now=change.now, settings_version=change.version)
            slos = change.tenants.slos(name)
            slos.add(slo, version=1, settings_version=change.version, now=change.now)
            tenant = change.tenants.get(name)
            change.tenants_changed.add(name)
            change.audit("tenant.create", subject=name, tenant=name, after=tenant.record())
            return tenant

    def list_tenants(
        self, *, after: str = "", limit: int | None = None, wanted: TenantFilter = ANY_TENANT
    ) -> list[Tenant]:
        """Tenants by name: all, or at most `limit` of those behind the name `after`."""
        if "\0" in (wanted.part or ""):
            return []  # which a server such as PostgreSQL would refuse to look for
        with self.store.transaction() as session:
            return TenantRepository(session).list(after=after, limit=limit, wanted=wanted)

    def get_tenant(self, name: str) -> Tenant:
        """One tenant. Raises: NotFoundError."""
        with self.store.transaction() as session:
            return TenantRepository(session).get(name)

    def update_tenant(
        self,
        name: str,
        *,
        expected_version: int | None = None,
        **changes: Unpack[TenantChanges],
    ) -> Tenant:
        """Change what is given, all or nothing; a `cache_group` of None takes the tenant out of its group.

        Raises: NotFoundError, InvalidValueError; StaleVersionError if `expected_version` does not hold.
        """
        with self.store.change() as change:
            before = change.tenants.get(name)
            check_expected(expected_version, before.version, f"tenant {name}")
            row = change.tenants.row(name)
            row.apply(changes)
            change.is_needless = change.tenants.get(name) == before
            row.settings_version = change.version
            after = change.tenants.get(name)
            change.tenants_changed.add(name)
            change.audit(
                "tenant.update", subject=name, tenant=name, before=before.record(), after=after.record()
            )
        return before if change.is_needless else after

    def delete_tenant(self, name: str, *, expected_version: int | None = None) -> None:
        """Delete a tenant with its keys and the history of its targets.

        Raises: NotFoundError; StaleVersionError if `expected_version` does not hold.
        """
        with self.store.change() as change:
            before = change.tenants.get(name)
            check_expected(expected_version, before.version, f"tenant {name}")
            change.keys_changed.update(dict.fromkeys(change.keys.records(name)))
            change.tenants_changed.add(name)
            change.tenants.delete(name)
            change.audit("tenant.delete", subject=name, tenant=name, before=before.record())

    # Targets

    def get_slo(self, tenant: str) -> SloRevision:
        """The targets that hold. Raises: NotFoundError."""
        with self.store.transaction() as session:
            return TenantRepository(session).slos(tenant).current()

    def set_slo(self, tenant: str, slo: Slo, expected_version: int | None = None) -> SloRevision:
        """Set a tenant's targets; the same targets again are a new version too.

        Raises: NotFoundError; StaleVersionError if `expected_version` is not the one that holds.
        """
        with self.store.change() as change:
            slos = change.tenants.slos(tenant)
            before = slos.current()
            check_expected(expected_version, before.version, f"the SLO of {tenant}")
            after = slos.add(slo, version=before.version + 1, settings_version=change.version, now=change.now)
            change.tenants_changed.add(tenant)
            change.audit("slo.set", subject=tenant, tenant=tenant, before=before.slo, after=slo)
            return after

    def list_slo_history(self, tenant: str, limit: int = HISTORY_LIMIT) -> list[SloRevision]:
        """The newest `limit` revisions of a tenant's targets, newest first. Raises: NotFoundError."""
        with self.store.transaction() as session:
            return TenantRepository(session).slos(tenant).history(limit)

    # All of it

    def audit(
        self,
        *,
        before_id: int | None = None,
        tenant: str | None = None,
        who: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = AUDIT_LIMIT,
    ) -> list[AuditEntry]:
        """The newest changes that fit, newest first; `since` is in the period, `until` is not."""
        if any("\0" in text for text in (tenant, who, action) if text is not None):
            return []  # which a server such as PostgreSQL would refuse to look for
        with self.store.transaction() as session:
            return AuditRepository(session).list(
                before_id=before_id,
                tenant=tenant,
                who=who,
                action=action,
                since=since,
                until=until,
                limit=limit,
            )

    def forget_audit(self, before: datetime, *, limit: int = FORGOTTEN_AT_ONCE) -> int:
        """Delete entries of the audit that are older, at most so many; how many it were."""
        with self.store.transaction() as session:
            deleted = AuditRepository(session).forget(before, limit=limit)
            session.commit()
            return deleted

    def record_action(self, action: str, *, subject: str, after: object, tenant: str | None = None) -> None:
        """Record what was done to something that is not in the database, such as the engine."""
        with self.store.change() as change:
            change.audit(action, subject=subject, after=after, tenant=tenant)

    def record_login(self, action: str, *, subject: str, tenant: str | None) -> None:
        """Record a login or its end, which changes no setting: the settings version stays."""
        with self.store.writing() as session:
            entry = AuditRepository(session).add(
                now_acting(),
                now=self.store.clock(),
                settings_version=self.directory.version,
                action=action,
                subject=subject,
                tenant=tenant,
                before=None,
                after=None,
            )
            session.commit()
        log_entry(entry)

    @property
    def directory(self) -> DirectorySnapshot:
        return self.store.directory

    def snapshot(self) -> DirectorySnapshot:
        """Everything as it is stored now, of one settings version; reads all of it."""
        return self.store.snapshot()

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` after every committed change (see `Store.subscribe`); the answer ends that."""
        return self.store.subscribe(callback)

    def refresh(self) -> bool:
        """Tell the subscribers if another process has changed the database; whether it had."""
        return self.store.refresh()
