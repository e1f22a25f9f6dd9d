"""What the services need of the store: transactions, and changes that are recorded."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Table
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
        """In whose name."""

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
    name = session.get_bind().dialect.name
    makers = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    if name not in makers:
        raise StoreError(f"this needs SQLite or PostgreSQL; the database is {name}")
    return makers[name](table)
