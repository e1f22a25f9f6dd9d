"""The history in the database: written every half minute, read by period, dropped when it is old.

Each write adds to the minute, the hour and the day at once, so nothing has to be rolled up later and a day
that is asked for costs one row. Safe to call from several threads. Every method may raise StoreError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import sqlmodel
from sqlalchemy import ColumnElement, Table, case, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from pdmuxd.controlplane.history.alarms import write_alarm
from pdmuxd.controlplane.history.columns import MAXIMA, NAMES, SUMS, Column, Row, merge
from pdmuxd.controlplane.history.periods import DAY_S, HOUR_S, MINUTE_S, STEPS_S, Segment, begin_of
from pdmuxd.controlplane.history.recorder import NODE, Batch, Mark, MarkKind, Series
from pdmuxd.controlplane.history.rows import (
    AlarmRow,
    DecisionSummaryRow,
    HistoryRow,
    HistorySeriesRow,
    MarkRow,
    RefusalRow,
)
from pdmuxd.controlplane.store import Store
from pdmuxd.engine.core.errors import StoreError

_AT_ONCE = 500
"""Rows or series of one statement: a lock is held for milliseconds."""
_SUM_NAMES = tuple(NAMES[column] for column in SUMS)
_MAXIMUM_NAMES = tuple(NAMES[column] for column in MAXIMA)
_JUDGED = (
    *("ttft_judged", "ttft_missed", "tbt_requests", "gaps", "gaps_missed"),
    *("engine_ttft_judged", "engine_ttft_missed", "engine_gaps", "engine_gaps_missed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long rows of each step are kept, in days."""

    minutes_days: int = 2
    hours_days: int = 92
    days_days: int = 800

    def of(self, step_s: int) -> int:
        """In seconds."""
        days = {MINUTE_S: self.minutes_days, HOUR_S: self.hours_days, DAY_S: self.days_days}[step_s]
        return days * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """Decisions alike in a period."""

    mode: str
    reason: str
    count: int
    time_ms: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one tenant used of one model in a period."""

    series: Series
    counts: Row
    refusals: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was judged of one tenant in a short time, for the windows of attainment."""

    series: Series
    at_s: int
    counts: tuple[int, ...]
    """TTFT judged and missed, requests with a gap, gaps and missed ones; and the engine's: TTFT, gaps."""


class HistoryStore:
    """Reads and writes the tables of the history."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: dict[Series, int] = {}

    # Writing

    def write(self, batch: Batch) -> None:
        """Add a batch in one transaction: all of it, or nothing."""
        wanted = {key[0] for key in batch.counts} | {key[0] for key in batch.refusals}
        with self._store.transaction() as session:
            ids = self._series_ids(session, wanted)
            self._upsert(session, HistoryRow, _SUM_NAMES, _MAXIMUM_NAMES, _count_rows(batch, ids))
            self._upsert(session, RefusalRow, ("count",), (), _refusal_rows(batch, ids))
            decided = ("count", "time_ms", "prefill_tokens")
            self._upsert(session, DecisionSummaryRow, decided, (), _decision_rows(batch))
            session.add_all(_mark_row(mark) for mark in batch.marks)
            for event in batch.alarms:
                write_alarm(session, event)
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
            session.commit()
        self._drop_empty_series()
        return dropped

    # Reading

    def series_of(self, tenant: str, *, since_ms: int | None) -> list[tuple[int, Series]]:
        """Ids of a tenant's series, one for each model; without `since_ms` also of tenants that are gone."""
        with self._store.transaction() as session:
            statement = sqlmodel.select(HistorySeriesRow).where(col(HistorySeriesRow.tenant) == tenant)
            if since_ms is not None:
                statement = statement.where(col(HistorySeriesRow.tenant_since) == since_ms)
            return [(row.id or 0, _series(row)) for row in session.exec(statement)]

    def read(self, series_ids: Sequence[int], segment: Segment) -> list[tuple[int, Row]]:
        """(begin, counts) of each period of a segment that has any, by time; the series together."""
        if not series_ids:
            return []
        statement = (
            select(col(HistoryRow.at), *_aggregates())
            .where(*_within(HistoryRow, segment), col(HistoryRow.series_id).in_(series_ids))
            .group_by(col(HistoryRow.at))
            .order_by(col(HistoryRow.at))
        )
        with self._store.transaction() as session:
            return [
                (int(at), [int(value) for value in row])
                for at, *row in session.connection().execute(statement)
            ]

    def refusals(self, series_ids: Sequence[int], segments: Sequence[Segment]) -> dict[str, int]:
        """How many were refused for each cause."""
        found: dict[str, int] = {}
        with self._store.transaction() as session:
            for segment in segments:
                statement = (
                    select(col(RefusalRow.cause), func.sum(RefusalRow.count))
                    .where(*_within(RefusalRow, segment), col(RefusalRow.series_id).in_(series_ids))
                    .group_by(col(RefusalRow.cause))
                )
                for cause, count in session.connection().execute(statement):
                    found[cause] = found.get(cause, 0) + int(count)
        return found

    def usage(self, segments: Sequence[Segment], *, tenant: str | None, since_ms: int | None) -> list[Usage]:
        """What was used, by tenant and model; of all tenants but the node's sum, or of one."""
        counts: dict[int, Row] = {}
        refusals: dict[int, dict[str, int]] = {}
        with self._store.transaction() as session:
            wanted = sqlmodel.select(HistorySeriesRow).where(
                col(HistorySeriesRow.tenant) != NODE
                if tenant is None
                else col(HistorySeriesRow.tenant) == tenant
            )
            if since_ms is not None:
                wanted = wanted.where(col(HistorySeriesRow.tenant_since) == since_ms)
            known = {row.id or 0: _series(row) for row in session.exec(wanted)}
            only = None if tenant is None else tuple(known)
            for segment in segments:
                for series_id, *row in session.connection().execute(
                    _by_series(select(col(HistoryRow.series_id), *_aggregates()), HistoryRow, segment, only)
                ):
                    values = [int(value) for value in row]
                    if series_id in counts:
                        merge(counts[series_id], values)
                    else:
                        counts[series_id] = values
                by_cause = select(
                    col(RefusalRow.series_id), col(RefusalRow.cause), func.sum(RefusalRow.count)
                ).group_by(col(RefusalRow.cause))
                for series_id, cause, count in session.connection().execute(
                    _by_series(by_cause, RefusalRow, segment, only)
                ):
                    of = refusals.setdefault(series_id, {})
                    of[cause] = of.get(cause, 0) + int(count)
        found = [
            Usage(series=known[series_id], counts=row, refusals=refusals.get(series_id, {}))
            for series_id, row in counts.items()
            if series_id in known
        ]
        return sorted(found, key=lambda use: (use.series.tenant, use.series.since_ms, use.series.model))

    def judged(self, segment: Segment) -> Iterator[Judged]:
        """What was judged of each tenant in each period of a segment."""
        columns = [getattr(HistoryRow, name) for name in _JUDGED]
        statement = select(col(HistoryRow.series_id), col(HistoryRow.at), *columns).where(
            *_within(HistoryRow, segment), col(HistoryRow.ttft_judged) + col(HistoryRow.gaps) > 0
        )
        with self._store.transaction() as session:
            known = {
                row.id: _series(row)
                for row in session.exec(sqlmodel.select(HistorySeriesRow))
                if row.tenant != NODE
            }
            for series_id, at_s, *values in session.connection().execute(statement):
                if series_id in known:
                    counts = tuple(int(value) for value in values)
                    yield Judged(series=known[series_id], at_s=int(at_s), counts=counts)

    def decisions(self, segment: Segment) -> list[tuple[int, DecisionSummary]]:
        """(begin, summary) of each kind of decision in each period of a segment."""
        statement = sqlmodel.select(DecisionSummaryRow).where(*_within(DecisionSummaryRow, segment))
        with self._store.transaction() as session:
            rows = session.exec(
                statement.order_by(col(DecisionSummaryRow.at), col(DecisionSummaryRow.count).desc())
            )
            return [
                (
                    row.at,
                    DecisionSummary(
                        mode=row.mode,
                        reason=row.reason,
                        count=row.count,
                        time_ms=row.time_ms,
                        prefill_tokens=row.prefill_tokens,
                    ),
                )
                for row in rows
            ]

    def marks(self, *, start_s: float, end_s: float, tenant: str | None, limit: int) -> list[Mark]:
        """What happened, oldest first; of `tenant` and of the node, or of all tenants."""
        statement = sqlmodel.select(MarkRow).where(
            col(MarkRow.at) >= datetime.fromtimestamp(start_s, UTC),
            col(MarkRow.at) < datetime.fromtimestamp(end_s, UTC),
        )
        if tenant is not None:
            statement = statement.where(col(MarkRow.tenant).is_(None) | (col(MarkRow.tenant) == tenant))
        with self._store.transaction() as session:
            rows = list(session.exec(statement.order_by(col(MarkRow.at).desc()).limit(limit)))
        return [
            Mark(at_s=row.at.timestamp(), kind=cast(MarkKind, row.kind), text=row.text, tenant=row.tenant)
            for row in reversed(rows)
        ]

    # Inside

    def _series_ids(self, session: Session, wanted: set[Series]) -> dict[Series, int]:
        missing = [series for series in wanted if series not in self._ids]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            values = [
                {"tenant": each.tenant, "tenant_since": each.since_ms, "model": each.model} for each in some
            ]
            # The transaction begins with a write: one that began with a read may find that it comes too late.
            insert = _insert(session)(_table(HistorySeriesRow)).on_conflict_do_nothing()
            session.connection().execute(insert, values)
        found = {series: self._ids[series] for series in wanted if series in self._ids}
        for start in range(0, len(missing), _AT_ONCE):
            names = {each.tenant for each in missing[start : start + _AT_ONCE]}
            statement = sqlmodel.select(HistorySeriesRow).where(col(HistorySeriesRow.tenant).in_(names))
            for row in session.exec(statement):
                if (series := _series(row)) in wanted:
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
        table = _table(kind)
        insert = _insert(session)(table)
        new = insert.excluded
        changed: dict[str, ColumnElement[int]] = {name: table.c[name] + new[name] for name in sums}
        for name in maxima:
            changed[name] = case((new[name] > table.c[name], new[name]), else_=table.c[name])
        statement = insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
        for start in range(0, len(values), _AT_ONCE):
            session.connection().execute(statement, values[start : start + _AT_ONCE])

    def _delete(self, kind: type[Any], step_s: int, before: int, series_ids: Sequence[int] | None) -> int:
        statement = delete(kind).where(kind.step_s == step_s, kind.at < before)
        if series_ids is not None:
            statement = statement.where(kind.series_id.in_(series_ids))
        with self._store.transaction() as session:
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


def _insert(session: Session) -> Any:  # noqa: ANN401 - of either dialect
    name = session.get_bind().dialect.name
    makers = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    if name not in makers:
        raise StoreError(f"the history needs SQLite or PostgreSQL; the database is {name}")
    return makers[name]


def _series(row: HistorySeriesRow) -> Series:
    return Series(tenant=row.tenant, since_ms=row.tenant_since, model=row.model)


def _within(kind: type[Any], segment: Segment) -> tuple[ColumnElement[bool], ...]:
    return (kind.step_s == segment.step_s, kind.at >= segment.start_s, kind.at < segment.end_s)


def _by_series(statement: Any, kind: type[Any], segment: Segment, only: Sequence[int] | None) -> Any:  # noqa: ANN401
    statement = statement.where(*_within(kind, segment)).group_by(kind.series_id)
    return statement if only is None else statement.where(kind.series_id.in_(only))


def _aggregates() -> list[Any]:
    return [
        (func.max if column >= Column.WORST_WAIT_MS else func.sum)(getattr(HistoryRow, NAMES[column]))
        for column in Column
    ]


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
