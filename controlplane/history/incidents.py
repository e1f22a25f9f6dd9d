"""Incidents in the database, each as it was last told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Table
from sqlmodel import Session, col, select

from pdmuxd.controlplane.database.heartbeat import ALIVE
from pdmuxd.controlplane.database.transactions import upsert_into
from pdmuxd.controlplane.events.messages import IncidentEvent
from pdmuxd.controlplane.history.rows import IncidentRow
from pdmuxd.controlplane.services.store import Store

RESTART = "restart"


def incident_rows(incidents: Iterable[IncidentEvent]) -> list[dict[str, object]]:
    """Rows as they are stored; made before the transaction, since two hundred take 10 ms."""
    return [_row(each) for each in incidents]


def write_incidents(session: Session, rows: list[dict[str, object]]) -> None:
    """Store them, in the place of what was stored of them before."""
    if not rows:
        return
    table: Table = IncidentRow.__table__  # type: ignore[attr-defined]
    replaced = tuple(name for name in rows[0] if name != "incident_id")
    session.connection().execute(upsert_into(session, table, replaced=replaced), rows)


class IncidentStore:
    """Reads them. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def end_left(self, now: datetime) -> list[IncidentEvent]:
        """End those that daemons left open when they ended, with their last miss; which they are.

        Where other nodes use the same database, only those that nobody has told of for a minute.
        """
        with self._store.writing() as session:
            found = session.exec(select(IncidentRow).where(col(IncidentRow.over_at).is_(None)))
            told = [IncidentEvent.model_validate_json(row.told) for row in found]
            left = [one for one in told if not self._store.is_shared or now - one.at > ALIVE]
            ended = [_ended(one, now) for one in left]
            write_incidents(session, incident_rows(ended))
            session.commit()
            return ended

    def find(self, incident_id: str) -> IncidentEvent | None:
        with self._store.transaction() as session:
            row = session.get(IncidentRow, incident_id)
            return None if row is None else IncidentEvent.model_validate_json(row.told)

    def list(
        self,
        *,
        tenant: str | None = None,
        cause: str | None = None,
        is_open: bool | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        before: datetime | None = None,
        limit: int,
    ) -> list[IncidentEvent]:
        """The newest that fit, newest first: begun before `end` and not over before `start`."""
        statement = select(IncidentRow).order_by(col(IncidentRow.began_at).desc()).limit(limit)
        over = col(IncidentRow.over_at)
        if tenant is not None:
            statement = statement.where(col(IncidentRow.tenant) == tenant)
        if cause is not None:
            statement = statement.where(col(IncidentRow.cause) == cause)
        if is_open is not None:
            statement = statement.where(over.is_(None) if is_open else over.is_not(None))
        if start is not None:
            statement = statement.where(over.is_(None) | (over >= start))
        for bound in (end, before):
            if bound is not None:
                statement = statement.where(col(IncidentRow.began_at) < bound)
        with self._store.transaction() as session:
            return [IncidentEvent.model_validate_json(row.told) for row in session.exec(statement)]


def _row(incident: IncidentEvent) -> dict[str, object]:
    return {
        "incident_id": incident.incident_id,
        "tenant": incident.tenant,
        "cause": incident.cause,
        "began_at": incident.began_at,
        "over_at": incident.over_at,
        "ended_by": incident.ended_by,
        "told": incident.model_dump_json(),
    }


def _ended(incident: IncidentEvent, now: datetime) -> IncidentEvent:
    at = {"at": now, "over_at": incident.last_missed_at}
    return incident.model_copy(update={**at, "state": "over", "ended_by": RESTART})
