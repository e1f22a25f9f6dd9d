"""What the host did between two launches, and what a stalled step is charged to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.link.messages import StallCause
from pdmuxd.engine.loop.decode import Step, StepTiming

HOST_SHARE = 0.5
"""Of a stall: if the device waited for the host for so much of it, the host is what it is charged to."""


class HostTime:
    """Adds up what the parts of the loop's turns take, without what they wait for the device."""

    def __init__(self, clock: Callable[[], float], collected_s: Callable[[], float] = lambda: 0.0) -> None:
        """`collected_s` tells the seconds of all garbage collections of this process so far."""
        self._clock = clock
        self._collected_s = collected_s
        self._spent_s: dict[StallCause, float] = {}
        self._since_s = clock()
        self._collected_before_s = collected_s()

    def passed(self, cause: StallCause | None = None) -> None:
        """Charge the time since the last call to `cause`; to nobody if the device was waited for."""
        now_s = self._clock()
        if cause is not None:
            self._spent_s[cause] = self._spent_s.get(cause, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def launched(self) -> Mapping[StallCause, float]:
        """Seconds since the launch before, by cause; a new count begins."""
        spent, self._spent_s = self._spent_s, {}
        collected_s = self._collected_s()
        spent[StallCause.COLLECTION] = collected_s - self._collected_before_s
        self._collected_before_s = collected_s
        return spent


def cause_of(step: Step, timing: StepTiming, stall_s: float, *, has_switched: bool) -> StallCause:
    """What a step that stalled for so long is charged to.

    A collection runs within a part of a turn, so it comes first if it explains what the host was late by.
    """
    late_s = timing.host_late_s or 0.0
    if late_s >= HOST_SHARE * stall_s and step.host_s:
        if step.host_s.get(StallCause.COLLECTION, 0.0) >= HOST_SHARE * late_s:
            return StallCause.COLLECTION
        parts = [cause for cause in step.host_s if cause is not StallCause.COLLECTION]
        return max(parts, key=step.host_s.__getitem__, default=StallCause.DEVICE)
    if step.decision.mode is Mode.SPLIT and step.decision.admit:
        return StallCause.PREFILL_BEGINS
    return StallCause.SWITCH if has_switched else StallCause.DEVICE
