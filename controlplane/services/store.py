"""The database as the services use it: transactions, changes, and the directory that follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import BoundedSemaphore, Lock
from types import MappingProxyType
from typing import TypeVar
from uuid import uuid4

from sqlalchemy import Engine
from sqlmodel import Session

from pdmuxd.controlplane.database.audit import AuditEntry, AuditRepository
from pdmuxd.controlplane.database.callers import Caller, now_acting
from pdmuxd.controlplane.database.heartbeat import beat
from pdmuxd.controlplane.database.opening import require_in_place, store_errors
from pdmuxd.controlplane.database.postgresql import is_postgresql
from pdmuxd.controlplane.database.settings_version import SettingsVersionRepository
from pdmuxd.controlplane.database.sqlite import BUSY_TIMEOUT_S, TO_WRITE
from pdmuxd.controlplane.node.scheduling import current_scheduling
from pdmuxd.controlplane.profiles.active import ActivePredictors
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.admin_tokens import admin_token_records
from pdmuxd.controlplane.tenants.api_keys import ApiKeyRepository
from pdmuxd.controlplane.tenants.prices import current_prices
from pdmuxd.controlplane.tenants.records import KeyRecord
from pdmuxd.controlplane.tenants.tenants import TenantRepository
from pdmuxd.engine.core.errors import StoreError

MAX_WRITERS = 20
"""Changes that wait for each other at once: half of the threads that serve REST, so that the others still
answer while a database that hangs holds these."""
_BUSY = "the database is busy: other changes wait for it; nothing was changed"
_T = TypeVar("_T")
Subscriber = Callable[[DirectorySnapshot], None]


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class Change:
    """A transaction that changes something (`transactions.Changing`), and what the directory must reread."""

    session: Session
    version: int
    now: datetime
    is_needless: bool = False
    tokens_changed: bool = False
    prices_changed: bool = False
    profiles_changed: bool = False
    scheduling_changed: bool = False
    tenants_changed: set[str] = field(default_factory=set)
    keys_changed: dict[str, KeyRecord | None] = field(default_factory=dict)
    """By the SHA-256 of their secrets; None for those that no longer hold."""
    entries: list[AuditEntry] = field(default_factory=list)

    @property
    def caller(self) -> Caller:
        """The caller in whose name it is made."""
        return now_acting().caller

    @property
    def tenants(self) -> TenantRepository:
        """Tenants, within this transaction."""
        return TenantRepository(self.session)

    @property
    def keys(self) -> ApiKeyRepository:
        """Keys, within this transaction."""
        return ApiKeyRepository(self.session)

    def audit(
        self,
        action: str,
        *,
        subject: str,
        before: object = None,
        after: object = None,
        tenant: str | None = None,
    ) -> None:
        """Record what is changed, in the same transaction."""
        entry = AuditRepository(self.session).add(
            now_acting(),
            now=self.now,
            settings_version=self.version,
            action=action,
            subject=subject,
            tenant=tenant,
            before=before,
            after=after,
        )
        self.entries.append(entry)


class Store:
    """One database and the directory of it; safe to use from several threads.

    Every change raises the settings version by one in its own transaction, and changes run one after
    the other. A change that raises has changed nothing. What a change costs does not grow with the number
    of tenants, beyond copying a table of references: only what it touched is read again.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], datetime] = utc_now,
        recorded: Callable[[AuditEntry], None] = lambda _: None,
    ) -> None:
        self.clock = clock
        self._recorded = recorded
        self._engine = engine
        self._subscribers: list[Subscriber] = []
        self._changing = Lock()
        self._writers = BoundedSemaphore(MAX_WRITERS)
        self._active = ActivePredictors()
        self.node = uuid4().hex
        self._directory = self.snapshot()

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may use the same database: it is a server's."""
        return is_postgresql(self._engine.url)

    @property
    def directory(self) -> DirectorySnapshot:
        """The newest that was published; changes of another process appear with the next `refresh`."""
        return self._directory

    def snapshot(self) -> DirectorySnapshot:
        """Everything as it is stored now, of one settings version; reads all of it."""
        with self.transaction() as session:
            return self._read_all(session)

    def lost_because(self) -> str | None:
        """Why nothing can be stored any more: a file of the database is gone or another."""
        try:
            require_in_place(self._engine)
        except StoreError as error:
            return str(error)
        return None

    def beat(self) -> None:
        """Write that this process is there. Raises: StoreError if nothing can be written."""
        with self.transaction() as session:
            beat(session, self.node, self.clock())
            session.commit()

    def version(self) -> int:
        """The settings version as it is stored now."""
        with self.transaction() as session:
            return self.version_in(session)

    def version_in(self, session: Session) -> int:
        """The same within a transaction, which then sees no later change."""
        return SettingsVersionRepository(session).read()

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` after every committed change; the answer ends that.

        It is called in the thread that made the change, before the change returns, with versions that
        only grow, one call at a time. It must be quick, must not raise, and must not change anything here.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def refresh(self) -> bool:
        """Tell the subscribers if another process has changed the database; whether it had."""
        if self.version() <= self._directory.version:
            return False
        with self._one_at_a_time():
            found = self.snapshot()
            if found.version <= self._directory.version:
                return False
            self._publish(found)
            return True

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One transaction, undone at its end unless it is committed. Raises: StoreError."""
        require_in_place(self._engine)
        with store_errors(self._engine), Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that reads before it writes: it waits for other writers first. Raises: StoreError."""
        with self.transaction() as session:
            session.connection(execution_options=TO_WRITE)
            yield session

    @contextmanager
    def storing(self) -> Iterator[Session]:
        """A transaction that writes much: changes wait for it as they do for each other.

        SQLite alone would let each try again and again until BUSY_TIMEOUT_S, and tell one that had no luck
        that the database is locked; a server locks rows. Raises: StoreError.
        """
        if not self.is_shared and not self._changing.acquire(timeout=2 * BUSY_TIMEOUT_S):
            raise StoreError(_BUSY)
        try:
            with self.transaction() as session:
                yield session
        finally:
            if not self.is_shared:
                self._changing.release()

    @contextmanager
    def change(self) -> Iterator[Change]:
        """One change, committed and published at the end of the block. Raises: StoreError."""
        with self._one_at_a_time():
            with self.transaction() as session:
                version = SettingsVersionRepository(session).bump()
                change = Change(session=session, version=version, now=self.clock())
                yield change
                if change.is_needless:
                    session.rollback()
                    return
                # Read before the commit, after which nothing may fail any more.
                session.flush()
                directory = self._after(change)
                session.commit()
            # A file that was removed meanwhile has taken the change with it: do not say that it is kept.
            require_in_place(self._engine)
            self._publish(directory)
        for entry in change.entries:
            self._recorded(entry)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._writers.acquire(blocking=False):
            raise StoreError(_BUSY)
        try:
            if not self._changing.acquire(timeout=2 * BUSY_TIMEOUT_S):
                raise StoreError(_BUSY)
            try:
                yield
            finally:
                self._changing.release()
        finally:
            self._writers.release()

    def _publish(self, directory: DirectorySnapshot) -> None:
        self._directory = directory
        for callback in tuple(self._subscribers):
            callback(directory)

    def _after(self, change: Change) -> DirectorySnapshot:
        """The directory with a change in it, made from the one before unless another process came between."""
        before, session = self._directory, change.session
        if before.version != change.version - 1:
            return self._read_all(session)
        tenants, keys = before.tenants, before.keys
        if change.tenants_changed:
            tenants, found = _copy(tenants), change.tenants.named(change.tenants_changed)
            for name in change.tenants_changed:
                tenants.pop(name, None)
                if name in found:
                    tenants[name] = found[name].record()
        if change.keys_changed:
            keys = _copy(keys)
            for sha256, key in change.keys_changed.items():
                keys.pop(sha256, None)
                if key is not None:
                    keys[sha256] = key
        return replace(
            before,
            version=change.version,
            tenants=MappingProxyType(tenants) if change.tenants_changed else tenants,
            keys=MappingProxyType(keys) if change.keys_changed else keys,
            admin_tokens=MappingProxyType(admin_token_records(session))
            if change.tokens_changed
            else before.admin_tokens,
            prices=current_prices(session) if change.prices_changed else before.prices,
            predictors=self._active.read(session) if change.profiles_changed else before.predictors,
            scheduling=current_scheduling(session) if change.scheduling_changed else before.scheduling,
        )

    def _read_all(self, session: Session) -> DirectorySnapshot:
        return DirectorySnapshot(
            version=SettingsVersionRepository(session).read(),
            tenants=MappingProxyType(TenantRepository(session).records()),
            keys=MappingProxyType(ApiKeyRepository(session).records()),
            admin_tokens=MappingProxyType(admin_token_records(session)),
            prices=current_prices(session),
            predictors=self._active.read(session),
            scheduling=current_scheduling(session),
        )


def _copy(table: Mapping[str, _T]) -> dict[str, _T]:
    """A view's own copy is that of the table behind it, twenty times as fast as reading the view."""
    return table.copy() if isinstance(table, MappingProxyType) else dict(table)
