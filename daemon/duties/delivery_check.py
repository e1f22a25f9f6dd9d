"""Looks every few seconds how late tokens reach clients, and has steps planned so."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.delivery import GAP_QUANTILE, DeliveryLateness, Way
from pdmuxd.daemon.bus import DeliveryChanged
from pdmuxd.daemon.process.duty import Duty

PERIOD_S = 5.0
_STEP_S = 0.001
_STEP_RATIO = 0.2
"""Engines are not told of smaller differences: one minute differs as much from the next."""

log = structlog.get_logger("pdmuxd.delivery")


class DeliveryKeeper:
    """Lives in the event loop. `clock` must not go back."""

    def __init__(
        self,
        lateness: DeliveryLateness,
        *,
        clock: Callable[[], float],
        publish: Callable[[DeliveryChanged], None],
        is_paced: Callable[[], bool] = lambda: False,
        attainment: Callable[[], float] = lambda: GAP_QUANTILE,
    ) -> None:
        """While it `is_paced`, gaps are longer on purpose, and say nothing of how late delivery is.

        The quantile that is measured is the strictest `attainment`, the p99 at least.
        """
        self._lateness = lateness
        self._clock = clock
        self._is_paced = is_paced
        self._attainment = attainment
        self.measured_s: float | None = None
        """At the last look; None: too few tokens to tell."""
        self.planned_s: float | None = None
        """What engines are told; None: nothing was measured yet, and they have a figure of their own."""
        self.by_way_s: dict[Way, float] = {}
        """The same as `measured_s` of each way's p99, where it is known."""
        self._publish = publish

    async def look(self) -> None:
        """Measure, and tell engines if it is another."""
        if self._is_paced():
            return
        now_s = self._clock()
        self.measured_s = self._lateness.late_s(now_s, max(GAP_QUANTILE, self._attainment()))
        self.by_way_s = self._lateness.late_by_way_s(now_s)
        if self.measured_s is None:
            return
        before_s = self.planned_s
        if before_s is not None and abs(self.measured_s - before_s) < max(_STEP_S, _STEP_RATIO * before_s):
            return
        self.planned_s = self.measured_s
        log.info(
            "tokens reach clients later than they are made; steps leave that much of a TBT target",
            late_ms=round(to_ms(self.measured_s), 1),
            before_ms=None if before_s is None else round(to_ms(before_s), 1),
        )
        self._publish(DeliveryChanged(self.planned_s))


def duties(keeper: DeliveryKeeper) -> tuple[Duty, ...]:
    """Look every PERIOD_S."""
    return (Duty(name="measuring delivery", work=keeper.look, period_s=PERIOD_S, is_alone=True),)
