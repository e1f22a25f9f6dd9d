"""Writes the history to the database, with the ledger in the same transaction, and drops what is old.

Each write adds to the minute, the hour and the day at once, so nothing has to be rolled up later and a day
that is asked for costs one row. Safe to call from several threads. Every method may raise StoreError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlmodel
from sqlalchemy import Table, delete, select
from sqlmodel import Session, col

from pdmuxd.controlplane.database.transactions import insert_into, upsert_into
from pdmuxd.controlplane.history.alarms import write_alarm
from pdmuxd.controlplane.history.batch import Batch, Mark, Series
from pdmuxd.controlplane.history.columns import MAXIMA, NAMES, SUMS, Row, merge
from pdmuxd.controlplane.history.incidents import incident_rows, write_incidents
from pdmuxd.controlplane.history.ledger import write_entries
from pdmuxd.controlplane.history.periods import DAY_S, HOUR_S, MINUTE_S, STEPS_S, begin_of
from pdmuxd.controlplane.history.rows import (
    AlarmRow,
    DecisionSummaryRow,
    HistoryRow,
    HistorySeriesRow,
    IncidentRow,
    MarkRow,
    RefusalRow,
    series_of,
)
from pdmuxd.controlplane.services.store import Store

_AT_ONCE = 500
"""Rows or series of one statement: a lock is held for milliseconds."""
_SUM_NAMES = tuple(NAMES[column] for column in SUMS)
_MAXIMUM_NAMES = tuple(NAMES[column] for column in MAXIMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long rows of each step are kept, in days."""

    minutes_days: int = 2
    hours_days: int = 92
    days_days: int = 800
    requests_days: int = 7
    max_requests: int = 2_000_000
    """Rows of the ledger, the newest."""

    def of(self, step_s: int) -> int:
        """Retention in seconds."""
        days = {MINUTE_S: self.minutes_days, HOUR_S: self.hours_days, DAY_S: self.days_days}[step_s]
        return days * DAY_S


class HistoryWriter:
    """Adds to the tables of the history, and drops what is old."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: dict[Series, int] = {}

    def write(self, batch: Batch) -> None:
        """Add a batch in one transaction: all of it, or nothing."""
        wanted = {key[0] for key in batch.counts} | {key[0] for key in batch.refusals}
        incidents = incident_rows(batch.incidents.values())
        with self._store.storing() as session:
            ids = self._series_ids(session, wanted)
            self._upsert(session, HistoryRow, _SUM_NAMES, _MAXIMUM_NAMES, _count_rows(batch, ids))
            self._upsert(session, RefusalRow, ("count",), (), _refusal_rows(batch, ids))
            decided = ("count", "time_ms", "prefill_tokens")
            self._upsert(session, DecisionSummaryRow, decided, (), _decision_rows(batch))
            write_entries(session, batch.requests)
            session.add_all(_mark_row(mark) for mark in batch.marks)
            for event in batch.alarms:
                write_alarm(session, event, self._store.node)
            write_incidents(session, incidents)
            session.commit()
        self._ids.update(ids)

    def prune(self, retention: Retention, now_s: float) -> int:
        """Drop what is older than it is to be kept; returns the number of rows."""
        dropped = 0
        with self._store.transaction() as session:
            known = [row.id or 0 for row in session.exec(sqlmodel.select(HistorySeriesRow))]
        for step_s in STEPS_S:
            before = int(now_s) - retention.of(step_s)
            for start in range(0, len(known), _AT_ONCE):
                some = known[start : start + _AT_ONCE]
                dropped += self._delete(HistoryRow, step_s, before, some)
                dropped += self._delete(RefusalRow, step_s, before, some)
            dropped += self._delete(DecisionSummaryRow, step_s, before, None)
        with self._store.transaction() as session:
            oldest = datetime.fromtimestamp(max(0.0, now_s - retention.of(HOUR_S)), UTC)
            dropped += session.connection().execute(delete(MarkRow).where(col(MarkRow.at) < oldest)).rowcount
            over = delete(AlarmRow).where(col(AlarmRow.ended_at) < oldest)
            dropped += session.connection().execute(over).rowcount
            past = delete(IncidentRow).where(col(IncidentRow.began_at) < oldest)
            dropped += session.connection().execute(past).rowcount
            session.commit()
        self._drop_empty_series()
        return dropped

    def _series_ids(self, session: Session, wanted: set[Series]) -> dict[Series, int]:
        missing = [series for series in wanted if series not in self._ids]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            values = [
                {"tenant": each.tenant, "tenant_since": each.since_ms, "model": each.model} for each in some
            ]
            # Begin with a write: SQLite may refuse to upgrade a transaction that began with a read.
            insert = insert_into(session, _table(HistorySeriesRow)).on_conflict_do_nothing()
            session.connection().execute(insert, values)
        found = {series: self._ids[series] for series in wanted if series in self._ids}
        for start in range(0, len(missing), _AT_ONCE):
            names = {each.tenant for each in missing[start : start + _AT_ONCE]}
            statement = sqlmodel.select(HistorySeriesRow).where(col(HistorySeriesRow.tenant).in_(names))
            for row in session.exec(statement):
                if (series := series_of(row)) in wanted:
                    found[series] = row.id or 0
        return found

    def _upsert(
        self,
        session: Session,
        kind: type[Any],
        sums: Sequence[str],
        maxima: Sequence[str],
        values: list[dict[str, object]],
    ) -> None:
        statement = upsert_into(session, _table(kind), added=tuple(sums), largest=tuple(maxima))
        for start in range(0, len(values), _AT_ONCE):
            session.connection().execute(statement, values[start : start + _AT_ONCE])

    def _delete(self, kind: type[Any], step_s: int, before: int, series_ids: Sequence[int] | None) -> int:
        statement = delete(kind).where(kind.step_s == step_s, kind.at < before)
        if series_ids is not None:
            statement = statement.where(kind.series_id.in_(series_ids))
        with self._store.storing() as session:
            count = session.connection().execute(statement).rowcount
            session.commit()
        return count

    def _drop_empty_series(self) -> None:
        used = select(col(HistoryRow.series_id)).where(
            col(HistoryRow.step_s) == DAY_S, col(HistoryRow.series_id) == col(HistorySeriesRow.id)
        )
        with self._store.transaction() as session:
            self._ids.clear()
            session.connection().execute(delete(HistorySeriesRow).where(~used.exists()))
            session.commit()


def _table(kind: type[Any]) -> Table:
    table: Table = kind.__table__
    return table


def _count_rows(batch: Batch, ids: Mapping[Series, int]) -> list[dict[str, object]]:
    found: dict[tuple[int, int, int], Row] = {}
    for (series, minute), row in batch.counts.items():
        for step_s in STEPS_S:
            key = step_s, ids[series], begin_of(minute, step_s)
            if key in found:
                merge(found[key], row)
            else:
                found[key] = list(row)
    return [
        {"step_s": step_s, "series_id": series_id, "at": at, **dict(zip(NAMES, row, strict=True))}
        for (step_s, series_id, at), row in sorted(found.items(), key=lambda item: item[0])
    ]


def _refusal_rows(batch: Batch, ids: Mapping[Series, int]) -> list[dict[str, object]]:
    return [
        {
            "step_s": step_s,
            "series_id": ids[series],
            "at": begin_of(minute, step_s),
            "cause": cause[:40],
            "count": count,
        }
        for (series, minute, cause), count in batch.refusals.items()
        for step_s in STEPS_S
    ]


def _decision_rows(batch: Batch) -> list[dict[str, object]]:
    return [
        {
            "step_s": step_s,
            "at": begin_of(minute, step_s),
            "mode": mode[:20],
            "reason": reason[:40],
            "count": counts.count,
            "time_ms": round(counts.time_ms),
            "prefill_tokens": counts.prefill_tokens,
        }
        for (minute, mode, reason), counts in batch.decisions.items()
        for step_s in STEPS_S
    ]


def _mark_row(mark: Mark) -> MarkRow:
    at = datetime.fromtimestamp(mark.at_s, UTC)
    return MarkRow(at=at, kind=mark.kind, tenant=mark.tenant, text=mark.text)
