"""The tables of the history. Rows are added to and dropped when they are old, never edited by people."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Text, UniqueConstraint
from sqlmodel import Field

from pdmuxd.controlplane.database.row import Row, UtcDateTime
from pdmuxd.controlplane.history.batch import Series

_TEXT_MAX = 500


def _count() -> int:
    found: int = Field(default=0, sa_type=BigInteger)
    return found


def _later_count() -> int:
    """A count of a column that was added when there were rows."""
    found: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    return found


class HistorySeriesRow(Row, table=True):
    """The tenant whose counts they are. A deleted tenant keeps its rows; `tenant_since` tells it from the
    next."""

    __tablename__ = "history_series"
    __table_args__ = (UniqueConstraint("tenant", "tenant_since", "model"),)

    id: int | None = Field(default=None, primary_key=True)
    tenant: str = Field(max_length=63)
    """Empty for the node: all tenants together, and the GPU."""
    tenant_since: int = Field(sa_type=BigInteger)
    """When it was created, in milliseconds since 1970."""
    model: str = Field(max_length=200)


def series_of(row: HistorySeriesRow) -> Series:
    """The series that a row names."""
    return Series(tenant=row.tenant, since_ms=row.tenant_since, model=row.model)


class HistoryRow(Row, table=True):
    """Counts of one series in one minute, hour or day; what they mean is in `columns.py`."""

    __tablename__ = "history"
    # Rows are found by their key alone; SQLite's separate rowid table would double the size.
    __table_args__ = ({"sqlite_with_rowid": False},)

    step_s: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    series_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    """When it begins, in seconds since 1970."""
    arrivals: int = _count()
    ended: int = _count()
    good: int = _count()
    ttft_judged: int = _count()
    ttft_missed: int = _count()
    tbt_requests: int = _count()
    gaps: int = _count()
    gaps_missed: int = _count()
    engine_ttft_judged: int = _count()
    engine_ttft_missed: int = _count()
    engine_gaps: int = _count()
    engine_gaps_missed: int = _count()
    prompt_tokens: int = _count()
    cached_tokens: int = _count()
    output_tokens: int = _count()
    refused: int = _count()
    prefill_sm_ms: int = _count()
    decode_sm_ms: int = _count()
    total_sm_ms: int = _count()
    asked: int = _later_count()
    unserved: int = _later_count()
    limited: int = _later_count()
    e2e_judged: int = _later_count()
    e2e_missed: int = _later_count()
    worst_wait_ms: int = _count()
    worst_ttft_ms: int = _count()
    worst_gap_ms: int = _count()
    waiting: int = _count()
    late: int = _count()
    in_flight: int = _count()


class RefusalRow(Row, table=True):
    """Refused requests by cause."""

    __tablename__ = "history_refusals"
    __table_args__ = ({"sqlite_with_rowid": False},)

    step_s: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    series_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    cause: str = Field(primary_key=True, max_length=40)
    count: int = _count()


class DecisionSummaryRow(Row, table=True):
    """Decisions alike in one minute, hour or day."""

    __tablename__ = "history_decisions"
    __table_args__ = ({"sqlite_with_rowid": False},)

    step_s: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    mode: str = Field(primary_key=True, max_length=20)
    reason: str = Field(primary_key=True, max_length=40)
    count: int = _count()
    time_ms: int = _count()
    prefill_tokens: int = _count()


class MarkRow(Row, table=True):
    """Something that happened at an instant: an engine's start, an edit of targets, another policy."""

    __tablename__ = "history_marks"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    kind: str = Field(max_length=20)
    tenant: str | None = Field(default=None, max_length=63)
    text: str = Field(max_length=_TEXT_MAX)


class AlarmRow(Row, table=True):
    """An alarm from its beginning to its end."""

    __tablename__ = "alarms"

    id: int | None = Field(default=None, primary_key=True)
    node: str | None = Field(default=None, max_length=32)
    """The daemon that raised it, as in `heartbeats`."""
    kind: str = Field(max_length=40)
    tenant: str | None = Field(default=None, max_length=63, index=True)
    severity: str = Field(max_length=20)
    began_at: datetime = Field(sa_type=UtcDateTime)
    """When its condition began."""
    raised_at: datetime = Field(sa_type=UtcDateTime, index=True)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Null while it is raised."""
    ended_by: str | None = Field(default=None, max_length=20)
    """`cleared`, or `restart`: the daemon ended while it was raised."""
    text: str = Field(max_length=_TEXT_MAX)


class IncidentRow(Row, table=True):
    """A time in which a tenant did not get what it is promised."""

    __tablename__ = "incidents"

    incident_id: str = Field(primary_key=True, max_length=100)
    tenant: str = Field(max_length=63, index=True)
    cause: str = Field(max_length=40)
    began_at: datetime = Field(sa_type=UtcDateTime, index=True)
    over_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """Null while it is open."""
    ended_by: str | None = Field(default=None, max_length=20)
    told: str = Field(sa_type=Text)
    """The rest of it, as the event `incident` in JSON."""
