"""The ledger: one row for each request that ended, without any text; rows are added and, when old, deleted.

A row is written in the transaction that adds the request to the history, of which usage and exports are made:
either both have it or neither has, after a crash too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger, Integer, delete, func, insert, select
from sqlmodel import Field, Session, col

from pdmuxd.controlplane.database.row import Row
from pdmuxd.controlplane.services.store import Store
from pdmuxd.controlplane.tenants.token_use import Tokens

_DELETED_AT_ONCE = 5000
"""Rows of one transaction: some 20 ms in which no other write is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One request that ended. What only the gateway knows is empty or null where it never saw it."""

    at: int
    """The second in which it was counted, Unix time: that of the history, so that sums are the same."""
    request_id: str
    tenant: str
    tenant_since: int
    key_id: str
    model: str
    outcome: str
    """`finished`, `aborted`, or `failed`, which are all that no engine reports."""
    status: int | None
    input_tokens: int
    """Of the prompt, computed."""
    cached_tokens: int
    """Of the prompt, found in the prefix cache."""
    output_tokens: int
    is_good: bool
    duration_ms: int | None
    ttft_ms: int | None


_NAMES = tuple(each.name for each in fields(LedgerEntry))
_values = attrgetter(*_NAMES)


class LedgerRow(Row, table=True):
    """A `LedgerEntry`; `id` grows in the order of writing."""

    __tablename__ = "ledger"

    id: int | None = Field(default=None, primary_key=True)
    at: int = Field(sa_type=BigInteger, index=True)
    request_id: str = Field(max_length=64)
    tenant: str = Field(max_length=63)
    tenant_since: int = Field(sa_type=BigInteger)
    key_id: str = Field(max_length=20)
    model: str = Field(max_length=200)
    outcome: str = Field(max_length=20)
    status: int | None = Field(default=None, sa_type=Integer)
    input_tokens: int = Field(sa_type=BigInteger)
    cached_tokens: int = Field(sa_type=BigInteger)
    output_tokens: int = Field(sa_type=BigInteger)
    is_good: bool
    duration_ms: int | None = Field(default=None, sa_type=BigInteger)
    ttft_ms: int | None = Field(default=None, sa_type=BigInteger)


def write_entries(session: Session, entries: Sequence[LedgerEntry]) -> None:
    """Append; the caller's transaction has the sums too."""
    if entries:
        # `asdict` copies each value and takes most of the write, in which tokens wait for Python's lock.
        rows = [dict(zip(_NAMES, _values(entry), strict=True)) for entry in entries]
        session.connection().execute(insert(LedgerRow), rows)


class Ledger:
    """Reads the ledger and deletes what is old. Safe in several threads. Raises: StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(
        self,
        *,
        start_s: int,
        end_s: int,
        tenant: str | None,
        since_ms: int | None,
        key_id: str | None,
        after_id: int,
        limit: int,
    ) -> list[tuple[int, LedgerEntry]]:
        """(id, entry) of those counted in a period, in the order of writing, behind `after_id`."""
        statement = (
            select(LedgerRow)
            .where(col(LedgerRow.at) >= start_s, col(LedgerRow.at) < end_s, col(LedgerRow.id) > after_id)
            .order_by(col(LedgerRow.id))
            .limit(limit)
        )
        for column, wanted in (
            (LedgerRow.tenant, tenant),
            (LedgerRow.tenant_since, since_ms),
            (LedgerRow.key_id, key_id),
        ):
            if wanted is not None:
                statement = statement.where(col(column) == wanted)
        with self._store.transaction() as session:
            return [(row.id or 0, _entry(row)) for row in session.scalars(statement)]

    def sums(self, *, start_s: int) -> dict[tuple[str, int, str, str], Tokens]:
        """The tokens of those counted since, by tenant, when it was created (ms), key and model."""
        of = [col(LedgerRow.tenant), col(LedgerRow.tenant_since), col(LedgerRow.key_id), col(LedgerRow.model)]
        kinds = (LedgerRow.input_tokens, LedgerRow.cached_tokens, LedgerRow.output_tokens)
        statement = (
            select(*of, *(func.sum(col(kind)) for kind in kinds))
            .where(col(LedgerRow.at) >= start_s)
            .group_by(*of)
        )
        with self._store.transaction() as session:
            rows: Iterable[Any] = session.connection().execute(statement)
            return {
                (tenant, since_ms, key_id, model): Tokens(
                    input_tokens=int(computed), cached_tokens=int(cached), output_tokens=int(output)
                )
                for tenant, since_ms, key_id, model, computed, cached, output in rows
            }

    def prune(self, *, before_s: int, max_rows: int) -> int:
        """Delete what was counted earlier, and the oldest beyond `max_rows`; how many rows."""
        with self._store.transaction() as session:
            newest = session.connection().execute(select(func.max(LedgerRow.id))).scalar() or 0
        dropped = 0
        old = (col(LedgerRow.at) < before_s) | (col(LedgerRow.id) <= newest - max_rows)
        while True:
            with self._store.storing() as session:
                some = select(col(LedgerRow.id)).where(old).limit(_DELETED_AT_ONCE)
                count = (
                    session.connection()
                    .execute(delete(LedgerRow).where(col(LedgerRow.id).in_(some)))
                    .rowcount
                )
                session.commit()
            dropped += count
            if count < _DELETED_AT_ONCE:
                return dropped


def _entry(row: LedgerRow) -> LedgerEntry:
    return LedgerEntry(**{name: getattr(row, name) for name in LedgerEntry.__slots__})
