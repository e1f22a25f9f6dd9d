"""What all tables share: one metadata with named constraints, instants with a zone, lists of texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, MetaData, String
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

NAMING_CONVENTION = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""SQLite changes a constraint by rebuilding the table, which needs its name; so each has one."""


class Row(SQLModel):
    """Base of all tables."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant, stored in UTC without a zone (SQLite has none) and read back with one."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Convert to UTC; an instant without a zone is a defect of the caller."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise TypeError("an instant without a time zone cannot be stored")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Give the zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class Texts(TypeDecorator[Sequence[str]]):
    """Texts without commas, stored as one text with commas between."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else ",".join(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Sequence[str] | None:  # noqa: ARG002
        """Take them apart again; no text is no element."""
        return None if value is None else tuple(filter(None, value.split(",")))
