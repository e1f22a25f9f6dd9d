"""What is wrong with the daemon and its machine now: the conditions behind its own alarms.

None of them stops requests: `/readyz` names them as `degraded` and stays 200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pdmuxd.controlplane.events.messages import AlarmKind
from pdmuxd.controlplane.services.store import Store
from pdmuxd.controlplane.telemetry.alarms import Alarms, Condition
from pdmuxd.daemon.duties import host_load, loop_lag, store_watch
from pdmuxd.daemon.duties.host_load import HostCollector, HostLoad
from pdmuxd.daemon.duties.loop_lag import LATE_RATIO, LATE_S, WINDOW_S, LoopLag
from pdmuxd.daemon.duties.store_watch import StoreWatch
from pdmuxd.daemon.duties.unsaved import Unsaved
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.definitions import histogram
from pdmuxd.daemon.process import clock
from pdmuxd.daemon.process.clock import ClockWatch
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.tokens.pacing import Pace

DEGRADED: frozenset[AlarmKind] = frozenset(
    ("database_unwritable", "disk_low", "usage_unsaved", "clock_jumped", "loop_late")
)
UNSAVED_AFTER_S = 5.0
"""Use is stored each second: this is several attempts, and with the alarms' second less than ten."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHealth:
    """Everything that is asked for it."""

    lost_because: Callable[[], str | None]
    store: StoreWatch
    lag: LoopLag
    host: HostLoad
    clock: ClockWatch
    use: Unsaved
    history: Unsaved
    min_free_bytes: int

    def conditions(self) -> Iterator[Condition]:
        lost = self.lost_because()
        if lost is not None:
            yield Condition(kind="database_lost", text=lost)
        elif (why := self.store.unwritable_because()) is not None:
            yield Condition(kind="database_unwritable", text=f"changes are refused, requests served: {why}")
        free_bytes = self.store.free_bytes
        if free_bytes is not None and free_bytes < self.min_free_bytes:
            yield Condition(
                kind="disk_low",
                text=f"{free_bytes // _MIB} MiB are free where state_dir is, and state_min_free_bytes is "
                f"{self.min_free_bytes // _MIB} MiB",
            )
        yield from self._unsaved()
        if (jump := self.clock.jump()) is not None:
            yield Condition(kind="clock_jumped", text=jump)
        late_s, longest_s = self.lag.late_s()
        said = []
        if (stopped := self.host.stood_still_because()) is not None:
            said.append(stopped)
        if late_s >= LATE_RATIO * WINDOW_S:
            said.append(
                f"in the last {WINDOW_S:.0f} s the daemon was late by over {1000 * LATE_S:.0f} ms for "
                f"{late_s:.1f} s, at most {longest_s:.1f} s at once: it has too little of the CPU"
            )
        if (short := self.host.short_because()) is not None:
            said.append(short)
        if said:
            yield Condition(kind="loop_late", text="; ".join(said))

    def _unsaved(self) -> Iterator[Condition]:
        parts = []
        if (since_s := self.use.seconds()) is not None and since_s > UNSAVED_AFTER_S:
            parts.append(f"the use of tokens for {since_s:.0f} s")
        if (since_s := self.history.seconds()) is not None and since_s > UNSAVED_AFTER_S:
            parts.append(f"the history for {since_s:.0f} s")
        if parts:
            yield Condition(
                kind="usage_unsaved",
                text=f"{' and '.join(parts)} could not be stored: a daemon that is killed now forgets it",
            )


def build_own_health(
    settings: Settings,
    store: Store,
    metrics: Metrics,
    *,
    clock: ClockWatch,
    use: Unsaved,
    history: Unsaved,
    pace: Pace,
    late_launches: Callable[[], int],
) -> OwnHealth:
    """What is asked, made of the settings; nothing is asked yet. `late_launches` counts the engine's."""
    host = HostLoad(pace, late_launches=late_launches)
    metrics.registry.register(HostCollector(host, pace))
    return OwnHealth(
        lost_because=store.lost_because,
        store=StoreWatch(store.beat, settings.resolved_state_dir),
        lag=LoopLag(histogram("pdmuxd_loop_lag_seconds", metrics.registry)),
        host=host,
        clock=clock,
        use=use,
        history=history,
        min_free_bytes=settings.state_min_free_bytes,
    )


def degraded(alarms: Alarms) -> list[str]:
    """The daemon's own alarms that are raised."""
    return [alarm.kind for alarm in alarms.active() if alarm.kind in DEGRADED]


def duties(own: OwnHealth) -> tuple[Duty, ...]:
    """Watch all that it is asked for."""
    return (
        *loop_lag.duties(own.lag),
        *host_load.duties(own.host),
        *store_watch.duties(own.store),
        *clock.duties(own.clock),
    )
