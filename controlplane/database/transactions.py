"""What the services need of the store: transactions, and changes that are recorded."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from functools import cache
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Table, case
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.engine.core.errors import StaleVersionError, StoreError


class Changing(Protocol):
    """A transaction that changes something, and the settings version that its change will have."""

    session: Session
    version: int
    now: datetime
    is_needless: bool
    """Set when things are already as wanted: the transaction is undone, version, audit and all."""
    tokens_changed: bool
    """Set when an admin token changes, so that the directory is told."""
    prices_changed: bool
    """Set when the price list changes."""
    profiles_changed: bool
    """Set when the profile in force, or what was learned of it, may change."""
    scheduling_changed: bool
    """Set when the policy, its splits or its shadow change."""

    @property
    def caller(self) -> Caller:
        """The caller in whose name it is made."""

    def audit(
        self,
        action: str,
        *,
        subject: str,
        before: object = None,
        after: object = None,
        tenant: str | None = None,
    ) -> None:
        """Record what is changed."""


class Transactions(Protocol):
    """A store. All may raise StoreError."""

    def transaction(self) -> AbstractContextManager[Session]:
        """Read, or change what no directory shows."""

    def writing(self) -> AbstractContextManager[Session]:
        """Read, and then change what no directory shows."""

    def change(self) -> AbstractContextManager[Changing]:
        """Change something. Changes run one after the other, each with a settings version of its own."""


def check_expected(expected: int | None, current: int, what: str) -> None:
    """Raises: StaleVersionError if a version is expected that is not the current one."""
    if expected is not None and expected != current:
        raise StaleVersionError(f"{what} is at version {current}, not {expected}; read it again")


def insert_into(session: Session, table: Table) -> Any:  # noqa: ANN401 - of either dialect
    """An INSERT that knows ON CONFLICT. Raises: StoreError if the database is neither of both."""
    return _insert_into(session.get_bind().dialect.name, table)


def _insert_into(dialect: str, table: Table) -> Any:  # noqa: ANN401
    makers = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    if dialect not in makers:
        raise StoreError(f"this needs SQLite or PostgreSQL; the database is {dialect}")
    return makers[dialect](table)


def upsert_into(
    session: Session,
    table: Table,
    *,
    added: tuple[str, ...] = (),
    largest: tuple[str, ...] = (),
    replaced: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401
    """An INSERT that changes the row that is there: what of its columns is added, the larger, or replaced."""
    return _upsert_into(session.get_bind().dialect.name, table, added, largest, replaced)


# Made once: what it consists of refers to itself, 20 KiB each time that only a collection would free, and in
# constant load there is none.
@cache
def _upsert_into(
    dialect: str, table: Table, added: tuple[str, ...], largest: tuple[str, ...], replaced: tuple[str, ...]
) -> Any:  # noqa: ANN401
    insert = _insert_into(dialect, table)
    new = insert.excluded
    changed: dict[str, ColumnElement[Any]] = {name: table.c[name] + new[name] for name in added}
    for name in largest:
        changed[name] = case((new[name] > table.c[name], new[name]), else_=table.c[name])
    changed |= {name: new[name] for name in replaced}
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
