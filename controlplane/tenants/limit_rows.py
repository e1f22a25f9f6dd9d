"""The rows of limits, a row each; a limit that is not there does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, cast

from sqlalchemy import BigInteger
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row
from pdmuxd.controlplane.tenants.limit_values import NAMES, Limit, LimitAction, LimitName

_NAME_MAX = 30
_KeyT = TypeVar("_KeyT")


class TenantLimitRow(Row, table=True):
    """A limit of all keys of a tenant together."""

    __tablename__ = "tenant_limits"

    tenant_id: int = Field(primary_key=True, foreign_key="tenants.id", ondelete="CASCADE")
    name: str = Field(primary_key=True, max_length=_NAME_MAX)
    value: int = Field(sa_type=BigInteger)
    action: str = Field(max_length=10)


class KeyLimitRow(Row, table=True):
    """A limit of one key."""

    __tablename__ = "key_limits"

    key_id: str = Field(primary_key=True, max_length=20, foreign_key="api_keys.key_id", ondelete="CASCADE")
    name: str = Field(primary_key=True, max_length=_NAME_MAX)
    value: int = Field(sa_type=BigInteger)
    action: str = Field(max_length=10)


def tenant_limits(session: Session, tenant_ids: Iterable[int] | None = None) -> dict[int, tuple[Limit, ...]]:
    """The limits of these tenants, or of all, by the tenant's id; none of those without any."""
    statement = select(TenantLimitRow)
    if tenant_ids is not None:
        statement = statement.where(col(TenantLimitRow.tenant_id).in_(list(tenant_ids)))
    return _grouped((row.tenant_id, row) for row in session.exec(statement))


def all_key_limits(session: Session) -> dict[str, tuple[Limit, ...]]:
    """The limits of all keys, by the key's id."""
    return _grouped((row.key_id, row) for row in session.exec(select(KeyLimitRow)))


def key_limits(session: Session, key_id: str) -> tuple[Limit, ...]:
    """The limits of one key."""
    rows = session.exec(select(KeyLimitRow).where(KeyLimitRow.key_id == key_id))
    return _grouped((row.key_id, row) for row in rows).get(key_id, ())


def copy_key_limits(session: Session, key_id: str, to_key_id: str) -> None:
    """Give a key the limits of another."""
    for limit in key_limits(session, key_id):
        session.add(KeyLimitRow(key_id=to_key_id, name=limit.name, value=limit.value, action=limit.action))
    session.flush()


def _grouped(rows: Iterable[tuple[_KeyT, TenantLimitRow | KeyLimitRow]]) -> dict[_KeyT, tuple[Limit, ...]]:
    """Group limits in the order of NAMES, so that the same limits are equal."""
    found: dict[_KeyT, list[Limit]] = {}
    for key, row in rows:
        limit = Limit(name=cast(LimitName, row.name), value=row.value, action=cast(LimitAction, row.action))
        found.setdefault(key, []).append(limit)
    return {key: tuple(sorted(limits, key=_place)) for key, limits in found.items()}


def _place(limit: Limit) -> int:
    return NAMES.index(limit.name)
