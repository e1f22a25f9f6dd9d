"""What the database knows of the history, by period. Safe to call from several threads.

Every method may raise StoreError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import sqlmodel
from sqlalchemy import ColumnElement, func, select
from sqlmodel import col

from pdmuxd.controlplane.history.batch import NODE, Mark, MarkKind, Series
from pdmuxd.controlplane.history.columns import NAMES, Column, Row, empty
from pdmuxd.controlplane.history.periods import Segment
from pdmuxd.controlplane.history.rows import (
    DecisionSummaryRow,
    HistoryRow,
    HistorySeriesRow,
    MarkRow,
    RefusalRow,
    series_of,
)
from pdmuxd.controlplane.services.store import Store

JUDGED = (
    *("ttft_judged", "ttft_missed", "tbt_requests", "gaps", "gaps_missed"),
    *("engine_ttft_judged", "engine_ttft_missed", "engine_gaps", "engine_gaps_missed"),
    *("asked", "unserved", "limited", "e2e_judged", "e2e_missed"),
)


USED = (
    *(Column.ARRIVALS, Column.ENDED, Column.GOOD, Column.REFUSED, Column.PROMPT_TOKENS, Column.CACHED_TOKENS),
    *(Column.OUTPUT_TOKENS, Column.PREFILL_SM_MS, Column.DECODE_SM_MS),
    *(Column.TTFT_JUDGED, Column.TTFT_MISSED, Column.GAPS, Column.GAPS_MISSED),
)
"""Columns of which usage is made. Each that is summed up over a month of 5,000 tenants costs 7 ms."""


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
    """Of USED; the other columns are 0."""
    refusals: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was judged of one tenant in a short time, for the windows of attainment."""

    series: Series
    at_s: int
    counts: tuple[int, ...]
    """As JUDGED: TTFT judged and missed, requests with a gap, gaps and missed ones; the engine's TTFT and
    gaps; requests asked, not served, and of these refused by the tenant's own limits; whole answers."""


class HistoryReader:
    """Reads the tables of the history."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def series_of(self, tenant: str, *, since_ms: int | None) -> list[tuple[int, Series]]:
        """Ids of a tenant's series, one for each model; without `since_ms` also of tenants that are gone."""
        with self._store.transaction() as session:
            statement = sqlmodel.select(HistorySeriesRow).where(col(HistorySeriesRow.tenant) == tenant)
            if since_ms is not None:
                statement = statement.where(col(HistorySeriesRow.tenant_since) == since_ms)
            return [(row.id or 0, series_of(row)) for row in session.exec(statement)]

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
            whose = col(HistorySeriesRow.tenant)
            wanted = _SERIES.where(whose != NODE if tenant is None else whose == tenant)
            if since_ms is not None:
                wanted = wanted.where(col(HistorySeriesRow.tenant_since) == since_ms)
            known = _series(session.connection().execute(wanted))
            only = None if tenant is None else tuple(known)
            for segment in segments:
                sums = (func.sum(getattr(HistoryRow, NAMES[column])) for column in USED)
                summed = _by_series(select(col(HistoryRow.series_id), *sums), HistoryRow, segment, only)
                for series_id, *row in session.connection().execute(summed).all():
                    of_series = counts.setdefault(series_id, empty())
                    for column, value in zip(USED, row, strict=True):
                        of_series[column] += int(value)
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
        columns = [getattr(HistoryRow, name) for name in JUDGED]
        statement = select(col(HistoryRow.series_id), col(HistoryRow.at), *columns).where(
            *_within(HistoryRow, segment),
            col(HistoryRow.ttft_judged) + col(HistoryRow.gaps) + col(HistoryRow.asked) > 0,
        )
        with self._store.transaction() as session:
            known = _series(session.connection().execute(_SERIES.where(col(HistorySeriesRow.tenant) != NODE)))
            for series_id, at_s, *values in session.connection().execute(statement):
                if series_id in known:
                    counts = tuple(map(int, values))
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


_SERIES = select(
    col(HistorySeriesRow.id),
    col(HistorySeriesRow.tenant),
    col(HistorySeriesRow.tenant_since),
    col(HistorySeriesRow.model),
)


def _series(rows: Iterable[Any]) -> dict[int, Series]:
    """Series by id; there are thousands of them, of which objects of rows would cost more than the sums."""
    return {
        series_id: Series(tenant=tenant, since_ms=since_ms, model=model)
        for series_id, tenant, since_ms, model in rows
    }


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
