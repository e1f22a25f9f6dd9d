"""Alarms in the database, each with its beginning and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from pdmuxd.controlplane.database.heartbeat import alive
from pdmuxd.controlplane.events.messages import AlarmEvent
from pdmuxd.controlplane.history.rows import AlarmRow
from pdmuxd.controlplane.services.store import Store

CLEARED, RESTART = "cleared", "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAlarm:
    """One alarm; `ended_at` is null while it is raised."""

    alarm_id: int
    kind: str
    tenant: str | None
    severity: str
    began_at: datetime
    raised_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    text: str


def write_alarm(session: Session, event: AlarmEvent, node: str) -> None:
    """Store that `node` raised an alarm, or that it has ended, with its text then."""
    if event.state == "raised":
        session.add(
            AlarmRow(
                node=node,
                kind=event.kind,
                tenant=event.tenant,
                severity=event.severity,
                began_at=event.since,
                raised_at=event.at,
                text=event.text[:500],
            )
        )
        session.flush()
        return
    row = col(AlarmRow.tenant)
    session.connection().execute(
        update(AlarmRow)
        .where(
            col(AlarmRow.node) == node,
            col(AlarmRow.kind) == event.kind,
            row.is_(None) if event.tenant is None else row == event.tenant,
            col(AlarmRow.ended_at).is_(None),
        )
        .values(ended_at=event.at, ended_by=CLEARED, text=event.text[:500])
    )


class AlarmStore:
    """Reads them. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def end_left(self, now: datetime) -> int:
        """End those that daemons left raised when they ended; how many. Those of other nodes that are there
        stay."""
        node = col(AlarmRow.node)
        left = update(AlarmRow).where(
            col(AlarmRow.ended_at).is_(None), node.is_distinct_from(self._store.node)
        )
        if self._store.is_shared:
            left = left.where(node.is_(None) | node.not_in(alive(self._store.node, now)))
        with self._store.transaction() as session:
            ended = session.connection().execute(left.values(ended_at=now, ended_by=RESTART)).rowcount
            session.commit()
            return ended

    def list(
        self,
        *,
        tenant: str | None = None,
        kind: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        before_id: int | None = None,
        limit: int,
    ) -> list[PastAlarm]:
        """The newest that fit, newest first: raised before `end` and not over before `start`."""
        statement = select(AlarmRow).order_by(col(AlarmRow.id).desc()).limit(limit)
        if tenant is not None:
            statement = statement.where(col(AlarmRow.tenant) == tenant)
        if kind is not None:
            statement = statement.where(col(AlarmRow.kind) == kind)
        if start is not None:
            ended = col(AlarmRow.ended_at)
            statement = statement.where(ended.is_(None) | (ended >= start))
        if end is not None:
            statement = statement.where(col(AlarmRow.raised_at) < end)
        if before_id is not None:
            statement = statement.where(col(AlarmRow.id) < before_id)
        with self._store.transaction() as session:
            return [
                PastAlarm(
                    alarm_id=row.id or 0,
                    kind=row.kind,
                    tenant=row.tenant,
                    severity=row.severity,
                    began_at=row.began_at,
                    raised_at=row.raised_at,
                    ended_at=row.ended_at,
                    ended_by=row.ended_by,
                    text=row.text,
                )
                for row in session.exec(statement)
            ]
