"""What the daemon has kept, as `/history` and `/alarms/history` answer."""

from __future__ import annotations

from datetime import datetime

import msgspec


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Columns(_Answer, frozen=True, kw_only=True):
    """Named columns, each with a value for every instant."""

    ttft_judged: tuple[int, ...] = ()
    ttft_missed: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()
    gaps_missed: tuple[int, ...] = ()
    prefill_sm_ms: tuple[int, ...] = ()
    decode_sm_ms: tuple[int, ...] = ()
    total_sm_ms: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    in_flight: tuple[int, ...] = ()


class Mark(_Answer, frozen=True, kw_only=True):
    """Something that happened."""

    at: datetime
    kind: str
    text: str


class History(_Answer, frozen=True, kw_only=True):
    """The history of one tenant, or of the node."""

    step_s: int = 60
    at: tuple[datetime, ...] = ()
    columns: Columns = Columns()
    marks: tuple[Mark, ...] = ()


class PastAlarm(_Answer, frozen=True, kw_only=True):
    """An alarm with its beginning and end."""

    kind: str
    began_at: datetime
    text: str = ""
    severity: str = "warning"
    tenant: str | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None


class PastAlarms(_Answer, frozen=True, kw_only=True):
    """Newest first."""

    alarms: tuple[PastAlarm, ...] = ()
