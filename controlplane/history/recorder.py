"""The history in memory: the last half hour by the second, and what is not in the database yet.

Fed in the daemon's event loop. Instants are Unix time by the wall clock, which may jump: what is counted goes
to the minute that it shows, added to what that minute has. Everything is bounded: seconds by their rows,
what waits for the database by its rows too; what had to be thrown away is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pdmuxd.controlplane.events.messages import AlarmEvent, IncidentEvent
from pdmuxd.controlplane.events.outcomes import ASKED, UNSERVED, Outcome
from pdmuxd.controlplane.history.batch import (
    NODE,
    Batch,
    DecisionCounts,
    Gauges,
    Mark,
    MarkKind,
    Series,
    add_gauges,
    packed_row,
    set_gauges,
)
from pdmuxd.controlplane.history.columns import Column, Row, empty, merge
from pdmuxd.controlplane.history.ledger import LedgerEntry
from pdmuxd.controlplane.history.periods import MINUTE_S, begin_of
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.link.messages import RequestRecord

SECONDS_KEPT = 1800
MAX_SECOND_ROWS = 150_000
"""With more than 83 tenants active in every second, fewer seconds are kept; about 40 MB."""
MAX_PENDING_ROWS = 100_000
MAX_MARKS = 1000
CLOSED_AT_ONCE = 10
"""Tenants of a second, whose rows take some 20 us each."""

_Key = TypeVar("_Key")


class Recorder:
    """Counts; `turn` closes the seconds, `take` hands over what is to be stored."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self.lost_rows = 0
        """Thrown away because the database did not take them for too long."""
        self.failed_writes = 0
        """Batches that the database did not take; each is tried again with the next."""
        self.model = ""
        self._wall_clock = wall_clock
        self._second = int(wall_clock())
        self._current: dict[str, Row] = {}
        self._closing: Iterator[None] = iter(())
        """What is left to do of the second before."""
        self._seconds: deque[tuple[int, dict[str, bytes]]] = deque()
        self._second_rows = 0
        self._batch = Batch()
        self._since_ms: dict[str, int] = {}
        self._ended: list[LedgerEntry] = []
        """In this second."""
        self._weights: dict[Series, list[int]] = {}
        """Tokens prefilled and made since SM time was last divided."""
        self._unshared_sm_ms = [0.0, 0.0]
        """SM time of prefill and decode (ms) that is not yet divided among tenants."""

    # What is counted

    def use(self, tenants: Mapping[str, TenantRecord]) -> None:
        self.change((name, None, tenants.get(name)) for name in {**self._since_ms, **tenants})

    def change(self, changed: Iterable[tuple[str, TenantRecord | None, TenantRecord | None]]) -> None:
        """Count tenants as they are now: name, before, after.

        Of one that is gone, or was made anew, the seconds are forgotten.
        """
        # An edit leaves a tenant the same one: with a thousand of them the rest would take milliseconds.
        others = [
            (name, tenant)
            for name, _, tenant in changed
            if self._since_ms.get(name) != (None if tenant is None else tenant.since_ms)
        ]
        if others:
            self._finish_closing()
        gone: dict[str, int] = {}
        for name, tenant in others:
            since_ms = self._since_ms.pop(name, None)
            if tenant is not None:
                self._since_ms[name] = tenant.since_ms
            if since_ms is not None and self._since_ms.get(name) != since_ms:
                gone[name] = since_ms
        if gone:
            for name in gone.keys() & self._current.keys():
                self._close_row(name, gone[name], self._current.pop(name), self._second)
            self._close_requests()
            for _, rows in self._seconds:
                for name in gone.keys() & rows.keys():
                    del rows[name]
                    self._second_rows -= 1

    def row(self, tenant: str) -> Row:
        """The counts of this second, to be added to."""
        row = self._current.get(tenant)
        if row is None:
            row = self._current[tenant] = empty()
        return row

    def ended(
        self,
        record: RequestRecord,
        *,
        is_good: bool,
        ttft_s: float | None,
        key_id: str = "",
        status: int | None = None,
        duration_s: float | None = None,
    ) -> None:
        """A request was added to this second's row of its tenant, and so goes into the ledger."""
        self._ended.append(
            LedgerEntry(
                at=self._second,
                request_id=record.request_id[:64],
                tenant=record.tenant,
                tenant_since=self._since_ms.get(record.tenant, 0),
                key_id=key_id,
                model=self.model,
                outcome=record.outcome,
                status=status,
                input_tokens=record.new_tokens,
                cached_tokens=record.reused_tokens,
                output_tokens=record.output_tokens,
                is_good=is_good,
                duration_ms=None if duration_s is None else max(0, round(1000 * duration_s)),
                ttft_ms=None if ttft_s is None else max(0, round(1000 * ttft_s)),
            )
        )

    @property
    def has_ended(self) -> bool:
        """Whether requests wait to be stored."""
        return bool(self._batch.requests)

    def refused(self, tenant: str, cause: str) -> None:
        """A request was refused because of `cause`, of which there are few."""
        self.row(tenant)[Column.REFUSED] += 1
        minute = _minute(self._second)
        for name in {tenant, NODE}:
            if (series := self._series(name)) is not None:
                self._batch.refusals[series, minute, cause] += 1

    def outcome(self, tenant: str, outcome: Outcome) -> None:
        """A request of a tenant is over."""
        if outcome in ASKED:
            row = self.row(tenant)
            row[Column.ASKED] += 1
            row[Column.UNSERVED] += outcome in UNSERVED
            row[Column.LIMITED] += outcome is Outcome.LIMITED

    def sm_time(self, *, prefill_sm_s: float, decode_sm_s: float, total_sm_s: float) -> None:
        row = self.row(NODE)
        row[Column.PREFILL_SM_MS] += round(1000 * prefill_sm_s)
        row[Column.DECODE_SM_MS] += round(1000 * decode_sm_s)
        row[Column.TOTAL_SM_MS] += round(1000 * total_sm_s)
        self._unshared_sm_ms[0] += 1000 * prefill_sm_s
        self._unshared_sm_ms[1] += 1000 * decode_sm_s

    def decision(self, mode: str, reason: str, *, time_s: float, prefill_tokens: int) -> None:
        key = (_minute(self._second), mode, reason)
        counts = self._batch.decisions.get(key)
        if counts is None:
            counts = self._batch.decisions[key] = DecisionCounts()
        counts.count += 1
        counts.time_ms += 1000 * time_s
        counts.prefill_tokens += prefill_tokens

    def mark(self, kind: MarkKind, text: str, *, tenant: str | None = None) -> None:
        """Something happened that charts should show."""
        self._batch.marks.append(Mark(at_s=self._wall_clock(), kind=kind, text=text[:500], tenant=tenant))
        if len(self._batch.marks) > MAX_MARKS:
            del self._batch.marks[0]
            self.lost_rows += 1

    def alarm(self, event: AlarmEvent) -> None:
        self._batch.alarms.append(event)
        if len(self._batch.alarms) > MAX_MARKS:
            del self._batch.alarms[0]
            self.lost_rows += 1

    def incident(self, event: IncidentEvent) -> None:
        self._batch.incidents[event.incident_id] = event
        if len(self._batch.incidents) > MAX_MARKS:
            del self._batch.incidents[next(iter(self._batch.incidents))]
            self.lost_rows += 1

    # Time passes

    def is_due(self) -> bool:
        """Whether the current second is over, or the clock was set."""
        return int(self._wall_clock()) != self._second

    def turn(self, gauges: Iterable[tuple[str, Gauges]]) -> Iterator[None]:
        """Close the second that is counted; how tenants stand is read meanwhile.

        What comes back closes a few tenants with each step. Whoever asks for what is closed gets all of it.
        """
        self._finish_closing()
        second, rows, ended = self._second, self._current, self._ended
        self._second, self._current, self._ended = int(self._wall_clock()), {}, []
        self._closing = self._close(second, rows, ended, gauges)
        return self._closing

    # What is asked for

    def packed(self, tenant: str, *, start_s: int, end_s: int) -> list[tuple[int, bytes]]:
        """(second, counts to be `unpacked`) of those that are kept, in the order in which they passed."""
        self._finish_closing()
        return [
            (second, rows[tenant])
            for second, rows in self._seconds
            if start_s <= second < end_s and tenant in rows
        ]

    @property
    def kept_since_s(self) -> int:
        return self._seconds[0][0] if self._seconds else self._second

    def pending(self, tenant: str) -> list[tuple[int, Row]]:
        """(minute, counts) of what is not in the database yet, of the tenant that is there now."""
        self._finish_closing()
        since_ms = self._since_ms.get(tenant, 0)
        return [
            (minute, row)
            for (series, minute), row in self._batch.counts.items()
            if series.tenant == tenant and series.since_ms == since_ms
        ]

    # What is stored

    def take(self, *, share_sm_time: bool = True) -> Batch:
        """What is to be stored; either it is, or `give_back` is called with it."""
        self._finish_closing()
        if share_sm_time:
            self._share_sm_time()
        batch, self._batch = self._batch, Batch()
        return batch

    def give_back(self, batch: Batch) -> None:
        """The database did not take it: keep it for the next time, the newest if it is too much."""
        self.failed_writes += 1
        newer, self._batch = self._batch, batch
        for key, row in newer.counts.items():
            self._add(key, row)
        self._batch.refusals.update(newer.refusals)
        for of, counts in newer.decisions.items():
            old = self._batch.decisions.setdefault(of, DecisionCounts())
            old.count += counts.count
            old.time_ms += counts.time_ms
            old.prefill_tokens += counts.prefill_tokens
        self._batch.marks += newer.marks
        self._batch.alarms += newer.alarms
        self._batch.incidents |= newer.incidents
        self._batch.requests += newer.requests
        self.lost_rows += max(0, len(self._batch.requests) - MAX_PENDING_ROWS)
        del self._batch.requests[:-MAX_PENDING_ROWS]
        del self._batch.marks[:-MAX_MARKS], self._batch.alarms[:-MAX_MARKS]
        self._bound(self._batch.counts)
        self._bound(self._batch.refusals)
        self._bound(self._batch.incidents)
        self._bound(self._batch.decisions)

    # Inside

    def _series(self, name: str) -> Series | None:
        if name != NODE and name not in self._since_ms:
            return None
        return Series(tenant=name, since_ms=self._since_ms.get(name, 0), model=self.model)

    def _close(
        self,
        second: int,
        rows: dict[str, Row],
        ended: list[LedgerEntry],
        gauges: Iterable[tuple[str, Gauges]],
    ) -> Iterator[None]:
        node, together = rows.pop(NODE, None) or empty(), empty()
        for number, (name, gauge) in enumerate(gauges):
            if name not in rows:
                rows[name] = empty()
            set_gauges(rows[name], gauge)
            add_gauges(together, gauge)
            if number % CLOSED_AT_ONCE == 0:
                yield
        packed: dict[str, bytes] = {}
        for number, (name, row) in enumerate(rows.items()):
            merge(node, row)
            if any(row) and name in self._since_ms:
                packed[name] = packed_row(row)
                self._close_row(name, self._since_ms[name], row, second)
            if number % CLOSED_AT_ONCE == 0:
                yield
        merge(node, together)
        if any(node):
            packed[NODE] = packed_row(node)
            self._close_row(NODE, 0, node, second)
        self._seconds.append((second, packed))
        self._second_rows += len(packed)
        while len(self._seconds) > SECONDS_KEPT or self._second_rows > MAX_SECOND_ROWS:
            _, oldest = self._seconds.popleft()
            self._second_rows -= len(oldest)
        self._batch.requests += ended

    def _finish_closing(self) -> None:
        for _ in self._closing:
            pass

    def _close_row(self, name: str, since_ms: int, row: Row, second: int) -> None:
        series = Series(tenant=name, since_ms=since_ms, model=self.model)
        self._add((series, _minute(second)), row)
        if name != NODE:
            weights = self._weights.setdefault(series, [0, 0])
            weights[0] += max(0, row[Column.PROMPT_TOKENS] - row[Column.CACHED_TOKENS])
            weights[1] += row[Column.OUTPUT_TOKENS]

    def _close_requests(self) -> None:
        """Close requests with their rows: a batch has both or neither."""
        self._batch.requests += self._ended
        self._ended = []

    def _add(self, key: tuple[Series, int], row: Row) -> None:
        kept = self._batch.counts.get(key)
        if kept is None:
            self._batch.counts[key] = list(row)
        else:
            merge(kept, row)

    def _bound(self, rows: dict[_Key, Any]) -> None:
        while len(rows) > MAX_PENDING_ROWS:
            del rows[next(iter(rows))]
            self.lost_rows += 1

    def _share_sm_time(self) -> None:
        """Give each tenant its share: of prefill by tokens that were prefilled, of decode by tokens made."""
        minute = _minute(self._second)
        for phase, column in enumerate((Column.PREFILL_SM_MS, Column.DECODE_SM_MS)):
            total, shared_ms = (
                sum(each[phase] for each in self._weights.values()),
                self._unshared_sm_ms[phase],
            )
            for series, weights in self._weights.items():
                if weights[phase]:
                    given_ms = int(shared_ms * weights[phase] / total)
                    self._batch.counts.setdefault((series, minute), empty())[column] += given_ms
                    self._unshared_sm_ms[phase] -= given_ms
        self._weights = {}


def _minute(at_s: float) -> int:
    return begin_of(int(at_s), MINUTE_S)
