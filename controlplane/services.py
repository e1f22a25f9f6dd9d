"""What can be done to tenants, keys and targets; the REST routes and the command line call the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from types import MappingProxyType

from sqlalchemy import Engine
from sqlmodel import Session

from pdmuxd.controlplane.api_keys import ApiKey, ApiKeyRepository, ApiKeyRow, IssuedKey
from pdmuxd.controlplane.credentials import LAST_CHARACTERS, digest, new_key_id, new_secret
from pdmuxd.controlplane.database import store_errors
from pdmuxd.controlplane.directory import DirectorySnapshot
from pdmuxd.controlplane.profiles.active import ActivePredictors
from pdmuxd.controlplane.profiles.service import Profiles
from pdmuxd.controlplane.settings_version import SettingsVersionRepository
from pdmuxd.controlplane.slos import SloRevision
from pdmuxd.controlplane.tenants import (
    DEFAULT_MAX_IN_FLIGHT,
    Tenant,
    TenantRepository,
    check_max_in_flight,
)
from pdmuxd.engine.core.errors import StaleVersionError
from pdmuxd.engine.core.slo import DEFAULT_SLO, Slo

HISTORY_LIMIT = 100

Subscriber = Callable[[DirectorySnapshot], None]


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class _Change:
    """A transaction that changes something, and the version that its change will have."""

    session: Session
    version: int
    now: datetime
    is_needless: bool = False
    """Set when things are already as wanted: the transaction is undone, version and all."""

    @property
    def tenants(self) -> TenantRepository:
        return TenantRepository(self.session)

    @property
    def keys(self) -> ApiKeyRepository:
        return ApiKeyRepository(self.session)


class ControlPlane:
    """Tenants, keys and targets in one database; safe to call from several threads.

    Every change raises the settings version by one in its own transaction, and changes run one after
    the other. A change that raises has changed nothing. Any method may raise StoreError.
    """

    def __init__(self, engine: Engine, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._engine = engine
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._publishing = Lock()
        self._active = ActivePredictors()
        self._published = self.snapshot().version

    # Tenants

    def create_tenant(
        self, name: str, slo: Slo = DEFAULT_SLO, max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    ) -> Tenant:
        """Add an enabled tenant, with no key yet. Raises: InvalidValueError, ConflictError if it exists."""
        with self._change() as change:
            change.tenants.add(name, max_in_flight=max_in_flight, now=change.now)
            slos = change.tenants.slos(name)
            slos.add(slo, version=1, settings_version=change.version, now=change.now)
            return change.tenants.get(name)

    def list_tenants(self) -> list[Tenant]:
        """All tenants, by name."""
        with self._transaction() as session:
            return TenantRepository(session).list()

    def get_tenant(self, name: str) -> Tenant:
        """One tenant. Raises: NotFoundError."""
        with self._transaction() as session:
            return TenantRepository(session).get(name)

    def update_tenant(
        self, name: str, *, enabled: bool | None = None, max_in_flight: int | None = None
    ) -> Tenant:
        """Change what is given, both or neither. Raises: NotFoundError, InvalidValueError."""
        with self._change() as change:
            before = change.tenants.get(name)
            row = change.tenants.row(name)
            if enabled is not None:
                row.enabled = enabled
            if max_in_flight is not None:
                check_max_in_flight(max_in_flight)
                row.max_in_flight = max_in_flight
            tenant = change.tenants.get(name)
            change.is_needless = tenant == before
        return tenant

    def set_enabled(self, name: str, enabled: bool) -> Tenant:
        """Let a tenant's keys work, or answer them with 403. Raises: NotFoundError."""
        return self.update_tenant(name, enabled=enabled)

    def delete_tenant(self, name: str) -> None:
        """Delete a tenant with its keys and the history of its targets. Raises: NotFoundError."""
        with self._change() as change:
            change.tenants.delete(name)

    # API keys

    def issue_key(self, tenant: str, label: str = "") -> IssuedKey:
        """Make a key; its secret is in the answer only. Raises: NotFoundError, InvalidValueError."""
        secret = new_secret()
        with self._change() as change:
            row = ApiKeyRow(
                key_id=new_key_id(),
                tenant_id=change.tenants.id_of(tenant),
                label=label,
                secret_sha256=digest(secret),
                last4=secret[-LAST_CHARACTERS:],
                created_at=change.now,
            )
            change.keys.add(row)
            key = row.value(tenant)
        return IssuedKey(**asdict(key), secret=secret)

    def list_keys(self, tenant: str | None = None) -> list[ApiKey]:
        """The keys of one tenant or of all, oldest first, revoked ones too. Raises: NotFoundError."""
        with self._transaction() as session:
            if tenant is not None:
                TenantRepository(session).row(tenant)
            return ApiKeyRepository(session).list(tenant)

    def revoke_key(self, key_id: str) -> ApiKey:
        """End a key for good; one that was revoked before stays as it is. Raises: NotFoundError."""
        with self._change() as change:
            row, tenant = change.keys.get(key_id)
            change.is_needless = row.revoked_at is not None
            if row.revoked_at is None:
                row.revoked_at = change.now
            return row.value(tenant)

    # Targets

    def get_slo(self, tenant: str) -> SloRevision:
        """The targets that hold. Raises: NotFoundError."""
        with self._transaction() as session:
            return TenantRepository(session).slos(tenant).current()

    def set_slo(self, tenant: str, slo: Slo, expected_version: int | None = None) -> SloRevision:
        """Set a tenant's targets; the same targets again are a new version too.

        Raises: NotFoundError; StaleVersionError if `expected_version` is not the one that holds.
        """
        with self._change() as change:
            slos = change.tenants.slos(tenant)
            current = slos.current().version
            if expected_version not in {None, current}:
                raise StaleVersionError(
                    f"the SLO of {tenant} is at version {current}, not {expected_version}; read it again"
                )
            return slos.add(slo, version=current + 1, settings_version=change.version, now=change.now)

    def list_slo_history(self, tenant: str, limit: int = HISTORY_LIMIT) -> list[SloRevision]:
        """The newest `limit` revisions of a tenant's targets, newest first. Raises: NotFoundError."""
        with self._transaction() as session:
            return TenantRepository(session).slos(tenant).history(limit)

    # All of it

    def snapshot(self) -> DirectorySnapshot:
        """Everything, as of one settings version."""
        with self._transaction() as session:
            return self._snapshot(session)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` after every committed change; the answer ends that.

        It is called in the thread that made the change, before the change returns, with versions that
        only grow, one call at a time; of two changes close together only the later may come. It must be
        quick, must not raise, and must not change anything here.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def refresh(self) -> bool:
        """Tell the subscribers if another process has changed the database; whether it had."""
        return self._publish(self.snapshot())

    @cached_property
    def profiles(self) -> Profiles:
        """Profiles; those of their changes that concern the engine are published as all others."""
        return Profiles(self._transaction, self._change)

    def _publish(self, snapshot: DirectorySnapshot) -> bool:
        with self._publishing:
            if snapshot.version <= self._published:
                return False
            self._published = snapshot.version
            for callback in tuple(self._subscribers):
                callback(snapshot)
            return True

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        with store_errors(), Session(self._engine) as session:
            yield session

    @contextmanager
    def _change(self) -> Iterator[_Change]:
        with self._transaction() as session:
            version = SettingsVersionRepository(session).bump()
            change = _Change(session=session, version=version, now=self._clock())
            yield change
            if change.is_needless:
                session.rollback()
                return
            # Read before the commit, after which nothing may fail any more.
            snapshot = self._snapshot(session)
            session.commit()
        self._publish(snapshot)

    def _snapshot(self, session: Session) -> DirectorySnapshot:
        version = SettingsVersionRepository(session).read()
        tenants = TenantRepository(session).list()
        digests = ApiKeyRepository(session).digests()
        return DirectorySnapshot(
            version=version,
            tenants=MappingProxyType({tenant.name: tenant.record() for tenant in tenants}),
            key_digests=MappingProxyType(digests),
            predictors=self._active.read(session),
        )
