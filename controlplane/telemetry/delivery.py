"""Measures by how much gaps between tokens are longer at the clients than in the engine.

A gap is made by a step; what comes between (processes, their queues, the event loop, the write) makes some
gaps longer and others shorter. So the p99 of all gaps that were written is longer than the p99 of those that
were made, and steps that are planned for a target have to leave that much of it.
"""

from __future__ import annotations

from enum import StrEnum

from pdmuxd.controlplane.telemetry.histogram import SlidingHistogram
from pdmuxd.controlplane.telemetry.judged import JudgedRequest

GAP_QUANTILE = 0.99
"""An answer is in time if this quantile of its gaps is: what is promised to no tenant is kept for each."""
TAIL_GAPS = 20
"""Beyond the quantile at least: the standard error of fewer is over a fifth of that tail."""


class Way(StrEnum):
    """How tokens came to the daemon."""

    DIRECT = "direct"
    """Straight from the engine's scheduler."""
    HTTP = "http"
    """Through the engine's front end."""


class _Gaps:
    """Gaps of the last minute, as they were made and as they were written."""

    def __init__(self) -> None:
        self.made = SlidingHistogram()
        self.written = SlidingHistogram()

    def late_s(self, quantile: float, now_s: float) -> float | None:
        least = round(TAIL_GAPS / (1.0 - quantile))
        made_s = self.made.quantile_s(quantile, now_s, least=least)
        written_s = self.written.quantile_s(quantile, now_s, least=least)
        return None if made_s is None or written_s is None else max(0.0, written_s - made_s)


class DeliveryLateness:
    """Keeps the lateness of the streamed answers of the last minute. `now_s` must not go back."""

    def __init__(self) -> None:
        self._all = _Gaps()
        self._by_way = {way: _Gaps() for way in Way}

    def on_request(self, judged: JudgedRequest, now_s: float) -> None:
        """A request ended; it counts if the gateway saw each write of it."""
        if judged.is_delivered and judged.gaps:
            way = Way.DIRECT if judged.is_direct else Way.HTTP
            for gaps in (self._all, self._by_way[way]):
                gaps.made.add_counts(judged.record.tbt_counts, now_s)
                gaps.written.add_counts(judged.gap_counts, now_s)

    def late_s(self, now_s: float, quantile: float = GAP_QUANTILE) -> float | None:
        """How much longer that quantile of the gaps is at clients.

        Where the gaps are too few for it, their p99; None if they are too few for that as well.
        """
        late_s = self._all.late_s(quantile, now_s)
        return self._all.late_s(GAP_QUANTILE, now_s) if late_s is None else late_s

    def late_by_way_s(self, now_s: float) -> dict[Way, float]:
        """The same of the p99 of each way's gaps, where they are enough to tell."""
        found = ((way, gaps.late_s(GAP_QUANTILE, now_s)) for way, gaps in self._by_way.items())
        return {way: late_s for way, late_s in found if late_s is not None}
