"""The history as it is asked for: what is in memory and what is in the database, put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from pdmuxd.controlplane.history.alarms import AlarmStore, PastAlarm
from pdmuxd.controlplane.history.batch import NODE, Mark, unpacked
from pdmuxd.controlplane.history.columns import Column, Row, merge
from pdmuxd.controlplane.history.ledger import Ledger
from pdmuxd.controlplane.history.others import LOOK_BACK_S, OtherNodes
from pdmuxd.controlplane.history.periods import (
    DAY_S,
    MINUTE_S,
    Segment,
    begin_of,
    segments,
    stored_step_s,
)
from pdmuxd.controlplane.history.reading import DecisionSummary, HistoryReader, Judged, Usage
from pdmuxd.controlplane.history.recorder import SECONDS_KEPT, Recorder
from pdmuxd.controlplane.history.writing import HistoryWriter, Retention
from pdmuxd.controlplane.services.store import Store
from pdmuxd.engine.core.errors import InvalidValueError, StoreError

MAX_POINTS = 2000
MAX_MARKS = 500
SECONDS_AT_ONCE = 200
"""Of the last half hour in one turn of the event loop."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What is asked for: `step_s` seconds a point, from `start_s` until before `end_s`, Unix time."""

    start_s: float
    end_s: float
    step_s: int

    def __post_init__(self) -> None:
        """Raises: InvalidValueError naming what is wrong."""
        if self.end_s <= self.start_s:
            raise InvalidValueError("to", "to is not later than from")
        if (self.end_s - self.start_s) / self.step_s > MAX_POINTS:
            raise InvalidValueError(
                "step_s",
                f"step_s is {self.step_s}: so long a time has over {MAX_POINTS} points of that length",
            )
        if self.step_s >= MINUTE_S:
            stored_step_s(self.step_s)

    @property
    def first_s(self) -> int:
        """The begin of the first point."""
        return begin_of(int(self.start_s), self.step_s)


class History:
    """Used in the daemon's event loop; the database is used in threads."""

    def __init__(self, recorder: Recorder, store: Store, retention: Retention | None = None) -> None:
        self.recorder = recorder
        self.writer = HistoryWriter(store)
        self.reader = HistoryReader(store)
        self.ledger = Ledger(store)
        self.retention = retention or Retention()
        self.others = OtherNodes() if store.is_shared else None
        """Where other nodes may write to the same database."""
        self.still = asyncio.Lock()
        """Held while counts move from memory to the database: a reader would find them in neither."""

    async def flush(self, *, share_sm_time: bool = True) -> None:
        """Store what was counted since the last time; what cannot be stored is kept. Raises: StoreError.

        With `share_sm_time` SM time is divided among the tenants of all requests that ended since that was
        last done: the longer that is, the truer.
        """
        async with self.still:
            batch = self.recorder.take(share_sm_time=share_sm_time)
            if not batch:
                return
            try:
                await asyncio.to_thread(self.writer.write, batch)
            except StoreError:
                self.recorder.give_back(batch)
                raise
            if self.others is not None:
                self.others.wrote(batch)

    async def judged_elsewhere(self, now_s: float) -> list[Judged]:
        """What other nodes have stored since this was asked last. Raises: StoreError."""
        if self.others is None:
            return []
        end_s = int(now_s) + MINUTE_S  # their clocks may be ahead
        segment = Segment(step_s=MINUTE_S, start_s=begin_of(int(now_s) - LOOK_BACK_S, MINUTE_S), end_s=end_s)
        async with self.still:
            found = await asyncio.to_thread(lambda: list(self.reader.judged(segment)))
            return self.others.new(found, now_s)

    async def prune(self, now_s: float) -> int:
        """Drop what is old; returns how many rows. Raises: StoreError."""
        kept = self.retention
        dropped = await asyncio.to_thread(
            self.ledger.prune, before_s=int(now_s) - kept.requests_days * DAY_S, max_rows=kept.max_requests
        )
        return dropped + await asyncio.to_thread(self.writer.prune, kept, now_s)

    async def read(self, tenant: str, since_ms: int, period: Period) -> list[tuple[int, Row]]:
        """(begin, counts) of each point of a tenant, or of the node, that has any, by time.

        `TOTAL_SM_MS` is the node's, for shares. Raises: StoreError.
        """
        if period.step_s < MINUTE_S:
            found = await self._seconds(tenant, period)
            node = found if tenant == NODE else await self._seconds(NODE, period)
        else:
            found = await self._stored(tenant, since_ms, period)
            node = found if tenant == NODE else await self._stored(NODE, 0, period)
        for at, row in found.items():
            if at in node:
                row[Column.TOTAL_SM_MS] = node[at][Column.TOTAL_SM_MS]
        return sorted(found.items())

    async def marks(self, period: Period, *, tenant: str | None, since_ms: int) -> list[Mark]:
        """What happened meanwhile, oldest first; of the node and one tenant, or all. Raises: StoreError."""
        start_s = max(period.first_s, since_ms / 1000)
        async with self.still:
            return await asyncio.to_thread(
                self.reader.marks, start_s=start_s, end_s=period.end_s, tenant=tenant, limit=MAX_MARKS
            )

    async def usage(
        self, start_s: int, end_s: int, *, now_s: float, tenant: str | None, since_ms: int | None
    ) -> list[Usage]:
        """What was used from `start_s` until before `end_s`; what is not stored yet is stored first.

        Raises: InvalidValueError for edges that are not known any more; StoreError.
        """
        kept_since_s = now_s - self.retention.of(MINUTE_S)
        parts = segments(start_s, end_s, minutes_kept_since_s=kept_since_s)
        await self.flush()
        return await asyncio.to_thread(self.reader.usage, parts, tenant=tenant, since_ms=since_ms)

    async def decisions(self, segment: Segment) -> list[tuple[int, DecisionSummary]]:
        """(begin, summary) of each kind of decision, after storing what is not yet. Raises: StoreError."""
        await self.flush()
        return await asyncio.to_thread(self.reader.decisions, segment)

    async def past_alarms(
        self,
        alarms: AlarmStore,
        *,
        limit: int,
        tenant: str | None = None,
        kind: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        before_id: int | None = None,
    ) -> list[PastAlarm]:
        """The newest that fit, newest first; what is not stored yet is stored first. Raises: StoreError."""
        if any("\0" in text for text in (tenant, kind) if text is not None):
            return []  # which a server such as PostgreSQL would refuse to look for
        await self.flush()
        ask = partial(
            alarms.list, tenant=tenant, kind=kind, start=start, end=end, before_id=before_id, limit=limit
        )
        return await asyncio.to_thread(ask)

    async def past_incidents(self, ask: Callable[[], _T]) -> _T:
        """What the store says when it is asked, after storing what is not yet. Raises: StoreError.

        What cannot be stored now is not waited for: an operator asks when something is wrong, and the alarm
        `database_unwritable` tells of that.
        """
        with contextlib.suppress(StoreError):
            await self.flush()
        return await asyncio.to_thread(ask)

    def kept_since_s(self, step_s: int, now_s: float) -> float:
        """The time from which points of that length are kept."""
        if step_s < MINUTE_S:
            return max(self.recorder.kept_since_s, now_s - SECONDS_KEPT)
        return now_s - self.retention.of(stored_step_s(step_s))

    async def _seconds(self, tenant: str, period: Period) -> dict[int, Row]:
        """Summed in slices: half an hour at once takes milliseconds, in which tokens would wait."""
        kept = self.recorder.packed(tenant, start_s=period.first_s, end_s=int(period.end_s))
        points: dict[int, Row] = {}
        for begin in range(0, len(kept), SECONDS_AT_ONCE):
            some = kept[begin : begin + SECONDS_AT_ONCE]
            _in_points(((second, unpacked(packed)) for second, packed in some), period.step_s, points)
            await asyncio.sleep(0)
        return points

    async def _stored(self, tenant: str, since_ms: int, period: Period) -> dict[int, Row]:
        segment = Segment(
            step_s=stored_step_s(period.step_s), start_s=period.first_s, end_s=int(period.end_s)
        )
        async with self.still:
            rows = await asyncio.to_thread(self._read, tenant, since_ms, segment)
            # What waits for the database is by minute; it belongs to the same points.
            waiting = [
                (minute, row)
                for minute, row in self.recorder.pending(tenant)
                if segment.start_s <= minute < segment.end_s
            ]
            return _in_points((*rows, *waiting), period.step_s)

    def _read(self, tenant: str, since_ms: int, segment: Segment) -> list[tuple[int, Row]]:
        ids = [series_id for series_id, _ in self.reader.series_of(tenant, since_ms=since_ms)]
        return self.reader.read(ids, segment)


def _in_points(
    rows: Iterable[tuple[int, Row]], step_s: int, points: dict[int, Row] | None = None
) -> dict[int, Row]:
    points = {} if points is None else points
    for at, row in rows:
        begin = begin_of(at, step_s)
        if begin in points:
            merge(points[begin], row)
        else:
            points[begin] = list(row)
    return points
