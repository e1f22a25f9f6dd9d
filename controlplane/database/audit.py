"""The audit: every change with who made it, when, why, and how things were before and after."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Text, and_, delete, or_
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.callers import Acting
from pdmuxd.controlplane.database.row import Row, UtcDateTime

WHY_MAX = 500
WHY_ALLOWED = f"at most {WHY_MAX} printable characters"
ACTION_MAX = 40
SOURCE_MAX = 60
"""An IPv6 address with a zone has at most 55 characters."""
APPLIED = "config.apply"
"""The action of an entry about many tenants at once, which has them in its states by name."""
_SUBJECT_MAX = 100
_log = logging.getLogger("pdmuxd.audit")

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change. `before` and `after` are null where there was, or is, nothing."""

    entry_id: int
    at: datetime
    who_kind: str
    who: str
    """The token's name, or the key's id."""
    why: str | None
    source: str | None
    """The address that the call came from; None where it came from no network, and of old entries."""
    action: str
    subject: str
    tenant: str | None
    settings_version: int
    before: State | None
    after: State | None


class AuditRow(Row, table=True):
    """Rows are added, never changed. A tenant that is deleted keeps its rows, so they name it by its name."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    who_kind: str = Field(max_length=20)
    who: str = Field(max_length=100)
    why: str | None = Field(default=None, max_length=WHY_MAX)
    source: str | None = Field(default=None, max_length=SOURCE_MAX)
    action: str = Field(max_length=ACTION_MAX)
    subject: str = Field(max_length=_SUBJECT_MAX)
    tenant: str | None = Field(default=None, max_length=63, index=True)
    settings_version: int
    before: str | None = Field(default=None, sa_type=Text)
    after: str | None = Field(default=None, sa_type=Text)

    def value(self) -> AuditEntry:
        """Turn into the value that leaves the store."""
        return AuditEntry(
            entry_id=self.id or 0,
            at=self.at,
            who_kind=self.who_kind,
            who=self.who,
            why=self.why,
            source=self.source,
            action=self.action,
            subject=self.subject,
            tenant=self.tenant,
            settings_version=self.settings_version,
            before=None if self.before is None else msgspec.json.decode(self.before),
            after=None if self.after is None else msgspec.json.decode(self.after),
        )


class AuditRepository:
    """The audit, within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self,
        acting: Acting,
        *,
        now: datetime,
        settings_version: int,
        action: str,
        subject: str,
        tenant: str | None,
        before: object,
        after: object,
    ) -> AuditEntry:
        """Append an entry; `before` and `after` are values of ours, mappings or None."""
        row = AuditRow(
            at=now,
            who_kind=acting.caller.kind,
            who=acting.caller.name,
            why=acting.why,
            source=None if acting.source is None else acting.source[:SOURCE_MAX],
            action=action,
            subject=subject[:_SUBJECT_MAX],
            tenant=tenant,
            settings_version=settings_version,
            before=_encoded(before),
            after=_encoded(after),
        )
        self._session.add(row)
        self._session.flush()
        return row.value()

    def list(
        self,
        *,
        before_id: int | None = None,
        tenant: str | None = None,
        who: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int,
    ) -> list[AuditEntry]:
        """The newest entries that fit, newest first; `before_id` goes on where an answer ended.

        `since` is in the period, `until` is not.
        """
        statement = select(AuditRow).order_by(col(AuditRow.id).desc()).limit(limit)
        for column, wanted in ((AuditRow.who, who), (AuditRow.action, action)):
            if wanted is not None:
                statement = statement.where(col(column) == wanted)
        if tenant is not None:
            statement = statement.where(or_(col(AuditRow.tenant) == tenant, _names(tenant)))
        if since is not None:
            statement = statement.where(col(AuditRow.at) >= since)
        if until is not None:
            statement = statement.where(col(AuditRow.at) < until)
        if before_id is not None:
            statement = statement.where(col(AuditRow.id) < before_id)
        return [row.value() for row in self._session.exec(statement)]

    def forget(self, before: datetime, *, limit: int) -> int:
        """Delete entries that are older, at most so many; how many it were."""
        old = select(AuditRow.id).where(col(AuditRow.at) < before).order_by(col(AuditRow.id)).limit(limit)
        ids = list(self._session.exec(old))
        if ids:
            self._session.connection().execute(delete(AuditRow).where(col(AuditRow.id).in_(ids)))
        return len(ids)


def _names(tenant: str) -> ColumnElement[bool]:
    """Whether an entry about many tenants at once names this one, as a key of its states."""
    key = f'"{tenant}":'
    either = or_(
        col(AuditRow.after).contains(key, autoescape=True),
        col(AuditRow.before).contains(key, autoescape=True),
    )
    return and_(col(AuditRow.tenant).is_(None), col(AuditRow.action) == APPLIED, either)


def log_entry(entry: AuditEntry) -> None:
    """The same for those who read logs; after the commit, so that what is logged has happened."""
    _log.info(
        "audit: %s %s by %s %s%s (settings %d)%s",
        entry.action,
        entry.subject,
        entry.who_kind,
        entry.who,
        f" from {entry.source}" if entry.source else "",
        entry.settings_version,
        f": {entry.why}" if entry.why else "",
    )


def _encoded(state: object) -> str | None:
    return None if state is None else msgspec.json.encode(_plain(state)).decode()


def _plain(value: object) -> object:
    """Our frozen values as JSON; what is marked as not to be shown, such as a secret, is left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.repr}
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, Mapping) else value
