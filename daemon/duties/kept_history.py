"""Stores the history, drops what is old every hour, and restores attainment at the start.

Every second in which requests ended they are stored, with the ledger; every half minute all of it.

All database work is done in threads. What is not stored when the daemon is killed is lost: requests of the
last second, SM time of the last half minute, and what the engine had not reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import count

import structlog

from pdmuxd.controlplane.history.alarms import AlarmStore
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.history.periods import MINUTE_S, Segment, begin_of
from pdmuxd.controlplane.history.reading import Judged
from pdmuxd.controlplane.history.writing import Retention
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.attainment import DAY_S, HOUR_S, MONTH_S
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.duties.unsaved import Unsaved
from pdmuxd.daemon.process.clock import ClockWatch
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.settings.model import HistorySection
from pdmuxd.engine.core.errors import StoreError

FLUSH_EVERY_S = 30.0
LEDGER_EVERY_S = 1.0
"""What a killed daemon forgets of requests that ended, at most: as of the use of tokens."""
OTHERS_EVERY_S = 10.0
LEFT_EVERY_S = 60.0
"""What other nodes judged counts here after this and FLUSH_EVERY_S, at most."""
PRUNE_EVERY_S = 3600.0
WINDOWS = ((HOUR_S, MINUTE_S), (DAY_S, 3600), (MONTH_S, 86_400))
"""(window, stored step), seconds: what each window of attainment is restored from, and how precisely."""

_AT_ONCE = 1000
"""Slots that are restored before others have their turn."""

log = structlog.get_logger("pdmuxd.history")


class HistoryKeeper:
    """What is done with the history from time to time."""

    def __init__(
        self,
        history: History,
        alarms: AlarmStore,
        incidents: IncidentStore,
        telemetry: Telemetry,
        *,
        tenants: Callable[[], Mapping[str, TenantRecord]],
        clock: ClockWatch,
        unsaved: Unsaved,
    ) -> None:
        self.history = history
        self._tenants = tenants
        self._alarms = alarms
        self._incidents = incidents
        self._telemetry = telemetry
        self._clock = clock
        self._turns = count(1)
        self._unsaved = unsaved

    @property
    def has_others(self) -> bool:
        """Whether other nodes may write to the same database."""
        return self.history.others is not None

    async def turn(self) -> None:
        """Each second: store what was counted if requests ended, and every half minute whatever there is."""
        is_due = next(self._turns) % round(FLUSH_EVERY_S / LEDGER_EVERY_S) == 0
        if is_due or self.history.recorder.has_ended:
            await self.flush(share_sm_time=is_due)

    async def flush(self, *, share_sm_time: bool = True) -> None:
        """Store what was counted; what cannot be stored is kept for the next time."""
        is_first = self._unsaved.tried()
        try:
            await self.history.flush(share_sm_time=share_sm_time)
        except StoreError as error:
            if is_first:
                log.warning(
                    "the history is not stored; it is kept in memory and tried again", reason=str(error)
                )
            return
        if not is_first:
            log.info("the history is stored again", lost_rows=self.history.recorder.lost_rows)
        self._unsaved.stored()

    async def count_others(self) -> None:
        """Count in attainment what other nodes on the same database have judged."""
        now_s = time.time()
        try:
            found = await self.history.judged_elsewhere(now_s)
        except StoreError as error:
            log.warning("what other nodes have judged is not known", reason=str(error))
            return
        tenants = self._tenants()
        for start in range(0, len(found), _AT_ONCE):
            for window_s, _ in WINDOWS:
                self._telemetry.restore(found[start : start + _AT_ONCE], tenants, window_s=window_s)
            await asyncio.sleep(0)

    async def end_left(self) -> None:
        """End alarms and incidents of nodes on the same database that are gone."""
        now = datetime.now(UTC)
        try:
            await asyncio.to_thread(self._alarms.end_left, now)
            await asyncio.to_thread(self._incidents.end_left, now)
        except StoreError as error:
            log.warning("what nodes that are gone left open is not ended", reason=str(error))

    async def prune(self) -> None:
        """Drop what is older than it is to be kept; nothing while the wall clock may be wrong by days."""
        if not self._clock.is_trusted:
            return
        try:
            dropped = await self.history.prune(time.time())
        except StoreError as error:
            log.warning("old history is not dropped", reason=str(error))
            return
        if dropped:
            log.info("old history dropped", rows=dropped)

    async def restore(self) -> None:
        """Count what was judged before this start, and end alarms and incidents that the last daemon left."""
        try:
            # Nothing is written meanwhile: it would be counted as if it had been before the start.
            async with self.history.still:
                now = datetime.now(UTC)
                await asyncio.to_thread(self._alarms.end_left, now)
                ended = await asyncio.to_thread(self._incidents.end_left, now)
                restored = [await self._restore(*window) for window in WINDOWS]
        except StoreError as error:
            log.warning("attainment before this start is not known", reason=str(error))
            return
        self._telemetry.incidents.restore(ended, now.timestamp())
        log.info("attainment restored", slots=sum(restored))

    async def end(self) -> None:
        """Store what was counted until now."""
        self.history.recorder.turn(())
        await self.flush()

    async def _restore(self, window_s: float, step_s: int) -> int:
        found = await asyncio.to_thread(self._judged, window_s, step_s)
        if self.history.others is not None and step_s == MINUTE_S:
            self.history.others.known(found)
        tenants = self._tenants()
        for start in range(0, len(found), _AT_ONCE):
            self._telemetry.restore(found[start : start + _AT_ONCE], tenants, window_s=window_s)
            await asyncio.sleep(0)
        return len(found)

    def _judged(self, window_s: float, step_s: int) -> list[Judged]:
        # What came since the start is counted as it comes.
        start_s = self._telemetry.started_s
        segment = Segment(
            step_s=step_s, start_s=begin_of(int(start_s - window_s), step_s), end_s=int(start_s) + 1
        )
        return list(self.history.reader.judged(segment))


def history_keeper(
    kept: HistorySection,
    telemetry: Telemetry,
    control_plane: ControlPlane,
    clock: ClockWatch,
    unsaved: Unsaved,
) -> HistoryKeeper:
    """The keeper of what `telemetry` counts; nothing is stored yet."""
    retention = Retention(
        minutes_days=kept.minutes_kept_days,
        hours_days=kept.hours_kept_days,
        days_days=kept.days_kept_days,
        requests_days=kept.requests_kept_days,
        max_requests=kept.requests_max_rows,
    )
    return HistoryKeeper(
        History(telemetry.recorder, control_plane.store, retention),
        AlarmStore(control_plane.store),
        IncidentStore(control_plane.store),
        telemetry,
        tenants=lambda: control_plane.directory.tenants,
        clock=clock,
        unsaved=unsaved,
    )


def start_keeping_history(stack: AsyncExitStack, keeper: HistoryKeeper) -> tuple[Duty, ...]:
    """Restore in the background, then store and drop until `stack` is left, and store once more then."""
    stack.push_async_callback(keeper.end)
    later = AsyncExitStack()
    stack.push_async_callback(later.aclose)
    duties = [
        Duty(name="storing the history", work=keeper.turn, period_s=LEDGER_EVERY_S),
        Duty(name="dropping old history", work=keeper.prune, period_s=PRUNE_EVERY_S, by_wall_clock=True),
    ]
    if keeper.has_others:
        duties += [
            Duty(name="counting what other nodes judged", work=keeper.count_others, period_s=OTHERS_EVERY_S),
            Duty(name="ending what gone nodes left", work=keeper.end_left, period_s=LEFT_EVERY_S),
        ]

    async def begin() -> None:
        await keeper.restore()
        for duty in duties:
            duty.start(later)

    restoring = Duty(name="restoring the history", work=begin)
    restoring.start(stack)
    return (restoring, *duties)
