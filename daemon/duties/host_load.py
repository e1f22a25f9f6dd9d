"""Whether the host has a processor for the daemon's event loop, as the kernel says; writes are planned by it.

Sources: proc(5) for /proc/stat and /proc/thread-self/schedstat, whose second number is how long the thread
was ready and waited for a processor; Documentation/accounting/psi.rst of Linux for /proc/pressure/cpu.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pdmuxd.daemon.metrics.definitions import gauge_family
from pdmuxd.daemon.process.cpu_quota import GROUPS, PROC, quota_periods
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.tokens.pacing import Pace

PERIOD_S = 1.0
QUOTA_LOOKS = 11
_QUOTA_LEAST = 2
QUOTA_RATIO = 0.02
"""Of a quota's periods, over the ten seconds between so many looks: two of a hundred. Each may hold a token
up for longer than the usual TBT target of 50 ms, and a chat of 46 tokens at 30 ms lasts for 14 of them."""
_STEAL = 8
"""The column of /proc/stat that counts what the hypervisor kept from this machine."""


@dataclass(frozen=True, slots=True)
class HostReading:
    """Counters that only grow, in seconds."""

    worked_s: float = 0.0
    """Of the thread that reads them."""
    waited_s: float = 0.0
    pressed_s: float = 0.0
    """While any task of the machine was ready and waited for a processor."""
    stolen_s: float = 0.0
    all_s: float = 0.0
    """Of all processors, whatever they did."""
    periods: int = 0
    """Of a CPU quota of the daemon's control group, 0 without one: a tenth of a second each by default."""
    throttled: int = 0
    """Of these, in which the quota was used up, so that every process of the group stood still."""


@dataclass(frozen=True, slots=True)
class HostShares:
    """Shares of the time between two readings, 0 to 1."""

    worked: float = 0.0
    waited: float = 0.0
    pressed: float = 0.0
    stolen: float = 0.0
    throttled: float = 0.0
    """Of the quota's periods."""

    @classmethod
    def between(cls, one: HostReading, other: HostReading, passed_s: float) -> HostShares:
        """What passed between them."""
        return cls(
            worked=(other.worked_s - one.worked_s) / passed_s,
            waited=(other.waited_s - one.waited_s) / passed_s,
            pressed=(other.pressed_s - one.pressed_s) / passed_s,
            stolen=(other.stolen_s - one.stolen_s) / max(other.all_s - one.all_s, 1e-9),
            throttled=(other.throttled - one.throttled) / max(other.periods - one.periods, 1),
        )


def read_host(proc: Path = PROC, groups: Path = GROUPS) -> HostReading:
    """The counters now; what this kernel does not tell is 0."""
    waited_s = pressed_s = stolen_s = all_s = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        waited_s = int((proc / "thread-self" / "schedstat").read_text().split()[1]) / 1e9
    with contextlib.suppress(OSError, ValueError, IndexError):
        pressed_s = int((proc / "pressure" / "cpu").read_text().split("total=")[1].split()[0]) / 1e6
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = [int(each) for each in (proc / "stat").read_text().splitlines()[0].split()[1:9]]
        stolen_s, all_s = ticks[_STEAL - 1] / 100, sum(ticks) / 100
    periods = quota_periods(proc, groups)
    return HostReading(time.thread_time(), waited_s, pressed_s, stolen_s, all_s, *periods)


class HostLoad:
    """Lives in the event loop's thread. `late_launches` counts those that the engine told of."""

    def __init__(
        self,
        pace: Pace,
        *,
        late_launches: Callable[[], int] = lambda: 0,
        read: Callable[[], HostReading] = read_host,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = pace
        self._late_launches = late_launches
        self._read = read
        self._clock = clock
        self._before: tuple[float, HostReading, float, int] | None = None
        self.shares = HostShares()
        """Between the last two looks."""
        self.late_launches = 0
        """Between these, too."""
        self._quota: deque[tuple[int, int]] = deque(maxlen=QUOTA_LOOKS)
        """Periods of a quota and those throttled, at the last looks."""

    async def look(self) -> None:
        """Measure, and plan how many steps' tokens are written at once."""
        now = self._clock(), self._read(), self._pace.writing_s, self._late_launches()
        self._quota.append((now[1].periods, now[1].throttled))
        before, self._before = self._before, now
        if before is None or (passed_s := now[0] - before[0]) <= 0:
            return
        self.shares = HostShares.between(before[1], now[1], passed_s)
        self.late_launches = max(0, now[3] - before[3])
        self._pace.plan(
            needed=self.shares.worked + self.shares.waited,
            writing=(now[2] - before[2]) / passed_s,
            now_s=now[0],
        )

    def short_because(self) -> str | None:
        """Say why tokens are written for several steps at once; None while they are not."""
        steps, shares = self._pace.steps, self.shares
        if steps == 1:
            return None
        said = (
            f"the daemon's loop worked for {shares.worked:.0%} of the last second and waited for a processor "
            f"for {shares.waited:.0%} (any task of the host: {shares.pressed:.0%}, kept by the hypervisor: "
            f"{shares.stolen:.0%}): tokens of up to {steps} steps are written at once, where targets allow it"
        )
        if self.late_launches:
            said += f"; the engine launched {self.late_launches} steps late"
        return f"{said}. Give the daemon cores of its own"

    def stood_still_because(self) -> str | None:
        """Say that a CPU quota stopped the daemon and its engine lately; None if it hardly did."""
        if len(self._quota) < 2:
            return None
        (first, stopped), (last, stopped_since) = self._quota[0], self._quota[-1]
        periods, throttled = last - first, stopped_since - stopped
        if throttled < max(_QUOTA_LEAST, QUOTA_RATIO * periods):
            return None
        return (
            f"a CPU quota stopped the daemon and its engine in {throttled} of its last {periods} periods, "
            "which are 100 ms unless it says otherwise: tokens of all answers wait for the rest of each. "
            "Raise or remove it (CPUQuota of the unit, the CPU limit of the container)"
        )


class HostCollector(Collector):
    """What `HostLoad` found."""

    def __init__(self, load: HostLoad, pace: Pace) -> None:
        self._load = load
        self._pace = pace

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        shares = self._load.shares
        ratios = gauge_family("pdmuxd_host_cpu_ratio")
        for name in ("worked", "waited", "pressed", "stolen", "throttled"):
            ratios.add_metric((name,), getattr(shares, name))
        yield ratios
        steps = gauge_family("pdmuxd_direct_steps_at_once")
        steps.add_metric((), self._pace.steps)
        yield steps


def duties(load: HostLoad) -> tuple[Duty, ...]:
    """Look every PERIOD_S."""
    return (Duty(name="watching the host", work=load.look, period_s=PERIOD_S),)
