"""The one number that grows with every change, and orders all of them."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, update
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row
from pdmuxd.engine.core.errors import StoreError

ONLY_ROW = 1
_NO_ROW = "the table settings_version has lost its row; restore a backup"


class SettingsVersionRow(Row, table=True):
    """A table of one row, which the first migration inserts."""

    __tablename__ = "settings_version"
    __table_args__ = (CheckConstraint(f"id = {ONLY_ROW}", name="only_row"),)

    id: int = Field(primary_key=True)
    version: int


class SettingsVersionRepository:
    """Reads and raises the settings version within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self) -> int:
        """Read the version and hold it: on servers with row locks no change commits until we end."""
        statement = select(SettingsVersionRow).with_for_update(read=True)
        row = self._session.exec(statement).one_or_none()
        if row is None:
            raise StoreError(_NO_ROW)
        return row.version

    def bump(self) -> int:
        """Raise the version by one and return it.

        Called first in a changing transaction, it takes the write lock (of SQLite's file, or of the
        row), so changes run one after the other and each sees what the one before it did.
        """
        statement = (
            update(SettingsVersionRow)
            .where(col(SettingsVersionRow.id) == ONLY_ROW)
            .values(version=col(SettingsVersionRow.version) + 1)
            .returning(col(SettingsVersionRow.version))
        )
        version: int | None = self._session.execute(statement).scalar_one_or_none()
        if version is None:
            raise StoreError(_NO_ROW)
        return version
