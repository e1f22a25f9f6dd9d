"""Measures by how much gaps between tokens are longer at the clients than in the engine.

A gap is made by a step; what comes between (processes, their queues, the event loop, the write) makes some
gaps longer and others shorter. So the p99 of all gaps that were written is longer than the p99 of those that
were made, and steps that are planned for a target have to leave that much of it.
"""

from __future__ import annotations

from pdmuxd.controlplane.telemetry.histogram import SlidingHistogram
from pdmuxd.controlplane.telemetry.judged import JudgedRequest

GAP_QUANTILE = 0.99
"""An answer is in time if this quantile of its gaps is."""
MIN_GAPS = 2_000
"""Fewer have less than 20 beyond the quantile, whose standard error is over a fifth of that tail."""


class DeliveryLateness:
    """Keeps the lateness of the streamed answers of the last minute. `now_s` must not go back."""

    def __init__(self) -> None:
        self._made = SlidingHistogram()
        self._written = SlidingHistogram()

    def on_request(self, judged: JudgedRequest, now_s: float) -> None:
        """A request ended; it counts if the gateway saw each write of it."""
        if judged.is_delivered and judged.gaps:
            self._made.add_counts(judged.record.tbt_counts, now_s)
            self._written.add_counts(judged.gap_counts, now_s)

    def late_s(self, now_s: float) -> float | None:
        """How much longer the p99 of the gaps is at clients; None if too few gaps came to tell."""
        made_s = self._made.quantile_s(GAP_QUANTILE, now_s, least=MIN_GAPS)
        written_s = self._written.quantile_s(GAP_QUANTILE, now_s, least=MIN_GAPS)
        return None if made_s is None or written_s is None else max(0.0, written_s - made_s)
