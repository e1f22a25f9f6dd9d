"""What is counted of tenants, and what of it goes to the database in one transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from struct import Struct
from typing import Literal

from pdmuxd.controlplane.events.messages import AlarmEvent, IncidentEvent
from pdmuxd.controlplane.history.columns import Column, Row
from pdmuxd.controlplane.history.ledger import LedgerEntry

NODE = ""
"""In the place of a tenant: all of them together, and the GPU."""


_LIMIT = 2**32 - 1


MarkKind = Literal["engine", "policy", "slo", "tenant", "profile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The tenant whose counts they are. `since_ms` tells a tenant from one of the same name before it."""

    tenant: str
    since_ms: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at an instant, for charts."""

    at_s: float
    kind: MarkKind
    text: str
    tenant: str | None = None


@dataclass(slots=True)
class DecisionCounts:
    """Decisions alike within a minute."""

    count: int = 0
    time_ms: float = 0.0
    prefill_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Batch:
    """What goes to the database in one transaction; keys hold the minute, as Unix time."""

    counts: dict[tuple[Series, int], Row] = field(default_factory=dict)
    refusals: Counter[tuple[Series, int, str]] = field(default_factory=Counter)
    decisions: dict[tuple[int, str, str], DecisionCounts] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    alarms: list[AlarmEvent] = field(default_factory=list)
    """Raised and cleared, in that order."""
    incidents: dict[str, IncidentEvent] = field(default_factory=dict)
    """By id, as they are now."""
    requests: list[LedgerEntry] = field(default_factory=list)
    """Those that are counted in `counts`."""

    def __bool__(self) -> bool:
        kept = (self.marks, self.alarms, self.incidents, self.requests)
        return any((self.counts, self.refusals, self.decisions, *kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """How a tenant stands at the end of a second."""

    waiting: int = 0
    late: int = 0
    oldest_wait_s: float = 0.0
    in_flight: int = 0


def unpacked(packed: bytes) -> Row:
    """The counts of a second."""
    return list(_PACKED.unpack(packed))


def set_gauges(row: Row, gauge: Gauges) -> None:
    """Keep the highest that was seen of each in a minute."""
    row[Column.WAITING] = max(row[Column.WAITING], gauge.waiting)
    row[Column.LATE] = max(row[Column.LATE], gauge.late)
    row[Column.WORST_WAIT_MS] = max(row[Column.WORST_WAIT_MS], round(1000 * gauge.oldest_wait_s))
    row[Column.IN_FLIGHT] = max(row[Column.IN_FLIGHT], gauge.in_flight)


def add_gauges(row: Row, gauge: Gauges) -> None:
    """Add up several tenants; of the oldest wait, keep the longest."""
    row[Column.WAITING] += gauge.waiting
    row[Column.LATE] += gauge.late
    row[Column.WORST_WAIT_MS] = max(row[Column.WORST_WAIT_MS], round(1000 * gauge.oldest_wait_s))
    row[Column.IN_FLIGHT] += gauge.in_flight


_PACKED = Struct(f"<{len(Column)}I")


def packed_row(row: Row) -> bytes:
    """The counts of a second in 4 bytes each; what is larger is kept as the largest that fits."""
    if max(row) <= _LIMIT:
        return _PACKED.pack(*row)
    return _PACKED.pack(*(min(value, _LIMIT) for value in row))
