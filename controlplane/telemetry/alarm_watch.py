"""Looks every second for what is wrong, and keeps the alarms of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from pdmuxd.controlplane.events.messages import AlarmEvent
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry import conditions
from pdmuxd.controlplane.telemetry.alarms import Alarms, Condition
from pdmuxd.controlplane.telemetry.drift import DriftWatch
from pdmuxd.controlplane.telemetry.load import EngineCounters
from pdmuxd.controlplane.telemetry.tenant_states import TenantStates
from pdmuxd.controlplane.telemetry.waiting import OpenCounts


class AlarmWatch:
    """Asked in the event loop. `own` says what the daemon finds wrong with itself and its machine."""

    def __init__(
        self,
        *,
        states: TenantStates,
        counters: EngineCounters,
        drift: DriftWatch,
        own: Callable[[], Iterable[Condition]],
    ) -> None:
        self.alarms = Alarms()
        self._own = own
        self.has_served = False
        """Whether an engine has served since the daemon started."""
        self._states = states
        self._counters = counters
        self._drift = drift
        self._at_bound: tuple[str, ...] = ()
        self._dropped = 0

    def on_at_bound(self, predictors: tuple[str, ...]) -> None:
        """The corrections of these predictors can go no further."""
        self._at_bound = predictors

    def forget_engine(self) -> None:
        """Another engine counts from 0."""
        self._dropped = 0

    def look(
        self, status: EngineStatus, waiting: Mapping[str, OpenCounts], now_s: float
    ) -> Iterator[AlarmEvent | None]:
        """The alarms that are raised or cleared now, and None where it may be paused; `waiting` is what is
        open, by tenant."""
        heard_s = self._counters.heard_s
        dropped = status.stats.dropped_records if status.stats is not None else 0
        grown, self._dropped = dropped - self._dropped, dropped
        silent_s = None if heard_s is None else now_s - heard_s
        found = chain(
            conditions.engine_conditions(status, silent_s=silent_s, has_served=self.has_served),
            self._states.burning(),
            conditions.late_conditions(waiting),
            conditions.dropped_conditions(grown),
            self._own(),
            conditions.drift_conditions(self._drift.all(now_s), self._at_bound),
        )
        return self.alarms.update(found, now_s)
