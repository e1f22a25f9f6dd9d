"""Tenants: their rows and their repository."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar, cast

from sqlalchemy import CheckConstraint, Select, false, func
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row, Texts, UtcDateTime
from pdmuxd.controlplane.tenants.limit_rows import tenant_limits
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.controlplane.tenants.slo_revisions import SloRepository, SloRevision, SloRevisionRow
from pdmuxd.controlplane.tenants.tenant_fields import (
    DEFAULT_MAX_IN_FLIGHT,
    NAME,
    NAME_MAX,
    NULLABLE,
    TenantChanges,
    check,
)
from pdmuxd.engine.core.errors import ConflictError, NotFoundError
from pdmuxd.engine.core.slo import (
    DEFAULT_LATE_ACTION,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_WEIGHT,
    LateAction,
    PriorityClass,
)

_AT_ONCE = 500
"""Values in one statement: SQLite takes 32,766 at most, PostgreSQL 65,535."""
_T = TypeVar("_T")
_CLASS_MAX = 20
"""Of the names of classes and actions, with room for longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(TenantRecord):
    """A tenant as operators see it: what the data plane knows, and where that came from."""

    created_at: datetime
    revision: SloRevision
    """The edit that set the present targets."""
    version: int
    """The settings version of its last change, targets included."""

    def record(self) -> TenantRecord:
        """What the data plane sees of it."""
        return TenantRecord(**{field.name: getattr(self, field.name) for field in fields(TenantRecord)})


class TenantRow(Row, table=True):
    """A tenant; its targets are in `slo_revisions`, its keys in `api_keys`."""

    __tablename__ = "tenants"
    __table_args__ = (CheckConstraint("max_in_flight > 0", name="max_in_flight"),)

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=NAME_MAX, unique=True)
    enabled: bool
    max_in_flight: int
    cache_group: str | None = Field(default=None, max_length=NAME_MAX)
    priority_class: str = Field(
        max_length=_CLASS_MAX, sa_column_kwargs={"server_default": DEFAULT_PRIORITY_CLASS}
    )
    weight: float = Field(sa_column_kwargs={"server_default": str(DEFAULT_WEIGHT)})
    max_wait_ms: int | None = Field(default=None)
    late_action: str = Field(max_length=_CLASS_MAX, sa_column_kwargs={"server_default": DEFAULT_LATE_ACTION})
    count_cached_tokens: bool = Field(sa_column_kwargs={"server_default": false()})
    max_tbt_cost_ratio: float | None = Field(default=None)
    model_aliases: Sequence[str] | None = Field(default=None, sa_type=Texts, nullable=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    settings_version: int = Field(sa_column_kwargs={"server_default": "0"})
    """Of its last change, edits of its targets not counted."""

    def value(self, revision: SloRevision, limits: tuple[Limit, ...] = ()) -> Tenant:
        """Turn into the value that leaves the store."""
        return Tenant(
            name=self.name,
            enabled=self.enabled,
            slo=revision.slo,
            slo_version=revision.version,
            max_in_flight=self.max_in_flight,
            cache_group=self.cache_group,
            priority_class=cast(PriorityClass, self.priority_class),
            weight=self.weight,
            max_wait_ms=self.max_wait_ms,
            late_action=cast(LateAction, self.late_action),
            since_ms=int(self.created_at.timestamp() * 1000),
            count_cached_tokens=self.count_cached_tokens,
            max_tbt_cost_ratio=self.max_tbt_cost_ratio,
            limits=limits,
            model_aliases=tuple(self.model_aliases or ()),
            created_at=self.created_at,
            revision=revision,
            version=max(self.settings_version, revision.settings_version),
        )

    def apply(self, changes: TenantChanges) -> None:
        """Change what is given. Raises: InvalidValueError naming the field; then some may be changed."""
        for field, value in changes.items():
            if value is None and field not in NULLABLE:
                continue
            check(field, value)
            setattr(self, field, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFilter:
    """Which tenants are wanted; what is None does not matter."""

    part: str | None = None
    """Is in the name."""
    priority_class: PriorityClass | None = None
    enabled: bool | None = None


ANY_TENANT = TenantFilter()


class TenantRepository:
    """Tenants by name, within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self, *, after: str = "", limit: int | None = None, wanted: TenantFilter = ANY_TENANT
    ) -> list[Tenant]:
        """Tenants by name, each with its present targets: at most `limit`, those behind `after`."""
        page = select(TenantRow.id).where(col(TenantRow.name) > after).order_by(TenantRow.name).limit(limit)
        if wanted.part is not None:
            page = page.where(col(TenantRow.name).contains(wanted.part, autoescape=True))
        for column, value in (
            (TenantRow.priority_class, wanted.priority_class),
            (TenantRow.enabled, wanted.enabled),
        ):
            if value is not None:
                page = page.where(col(column) == value)
        return self._page(page, is_whole=limit is None and wanted == ANY_TENANT)

    def named(self, names: Iterable[str]) -> dict[str, Tenant]:
        """Tenants of these names that exist, by name."""
        found: dict[str, Tenant] = {}
        for some in in_batches(tuple(names)):
            page = self._page(select(TenantRow.id).where(col(TenantRow.name).in_(some)), is_whole=False)
            found |= {tenant.name: tenant for tenant in page}
        return found

    def _page(self, page: Select[Any], *, is_whole: bool) -> builtins.list[Tenant]:
        newest = (
            select(SloRevisionRow.tenant_id, func.max(SloRevisionRow.version).label("version"))
            .where(col(SloRevisionRow.tenant_id).in_(page))
            .group_by(col(SloRevisionRow.tenant_id))
            .subquery()
        )
        statement = (
            select(TenantRow, SloRevisionRow)
            .join(newest, col(TenantRow.id) == newest.c.tenant_id)
            .join(
                SloRevisionRow,
                (col(SloRevisionRow.tenant_id) == newest.c.tenant_id)
                & (col(SloRevisionRow.version) == newest.c.version),
            )
            .order_by(TenantRow.name)
        )
        found = list(self._session.exec(statement))
        limits = tenant_limits(self._session, None if is_whole else [_id(row) for row, _ in found])
        return [row.value(revision.value(row.name), limits.get(_id(row), ())) for row, revision in found]

    def records(self) -> dict[str, TenantRecord]:
        """What the data plane sees of all of them, by name."""
        return {tenant.name: tenant.record() for tenant in self.list()}

    def get(self, name: str) -> Tenant:
        """One tenant with its present targets. Raises: NotFoundError."""
        return self._value(self.row(name))

    def row(self, name: str) -> TenantRow:
        """The row itself, to change it. Raises: NotFoundError."""
        row = self._find(name) if NAME.fullmatch(name) else None
        if row is None:
            raise NotFoundError(f"there is no tenant {name[:80]!r}")
        return row

    def slos(self, name: str) -> SloRepository:
        """The tenant's revisions. Raises: NotFoundError."""
        return self._slos(self.row(name))

    def id_of(self, name: str) -> int:
        """The key that other tables use. Raises: NotFoundError."""
        return _id(self.row(name))

    def add(self, name: str, given: TenantChanges, *, now: datetime, settings_version: int) -> None:
        """Add an enabled tenant, as yet without targets; what is not `given` gets its default.

        Raises: InvalidValueError, ConflictError if there is one of that name.
        """
        check("name", name)
        if self._find(name) is not None:
            raise ConflictError(f"there is already a tenant {name!r}")
        row = TenantRow(
            name=name,
            enabled=True,
            max_in_flight=DEFAULT_MAX_IN_FLIGHT,
            priority_class=DEFAULT_PRIORITY_CLASS,
            weight=DEFAULT_WEIGHT,
            late_action=DEFAULT_LATE_ACTION,
            count_cached_tokens=False,
            created_at=now,
            settings_version=settings_version,
        )
        row.apply(given)
        self._session.add(row)
        self._session.flush()

    def delete(self, name: str) -> None:
        """Delete a tenant; the database deletes its keys and revisions with it. Raises: NotFoundError."""
        self._session.delete(self.row(name))
        self._session.flush()

    def _find(self, name: str) -> TenantRow | None:
        return self._session.exec(select(TenantRow).where(TenantRow.name == name)).one_or_none()

    def _value(self, row: TenantRow) -> Tenant:
        limits = tenant_limits(self._session, [_id(row)])
        return row.value(self._slos(row).current(), limits.get(_id(row), ()))

    def _slos(self, row: TenantRow) -> SloRepository:
        return SloRepository(self._session, tenant_id=_id(row), tenant=row.name)


def in_batches(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Parts that each fit one statement."""
    for first in range(0, len(values), _AT_ONCE):
        yield values[first : first + _AT_ONCE]


def _id(row: TenantRow) -> int:
    if row.id is None:
        raise NotFoundError(f"tenant {row.name!r} is not stored yet")
    return row.id
