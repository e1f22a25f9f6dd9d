"""The margin that is planned for fused steps: a high quantile of measured over predicted time, learned.

The contention guard does not cover a fused step, and a step that is planned to end just at the target misses
it whenever it takes longer than predicted. The quantile is found by unequal corrections: when a step exceeds
it, it rises to what was measured; when a step does not, it falls by very little. It must be a very high one:
a request meets its target if the p99 of its gaps does, so one late step among fewer than 100 tokens is enough
to miss it.

A step of few tokens may take as long as the host needs to launch it, however fast the device is. That time is
the floor. It is learned from steps that took far longer than the device's scatter explains, and forgotten
within seconds, because a host is slow for a while and then fast again.
"""

from __future__ import annotations

from dataclasses import dataclass

RISE = 0.1
"""Of the ratio, at most, when it was exceeded."""
FALL = 0.00003
"""Share of the ratio by which every step within it lowers it: a rise of 0.1 is forgotten in 3,300 steps,
about two minutes. With scatter of 3 to 20% the ratio is then exceeded by 1 step in 300 to 2,000."""

LOWEST, HIGHEST = 1.0, 2.0
FIRST = 1.15
"""Before anything was measured: the 90th percentile of the fused predictor's error on shapes it had not seen
(H200, Llama-8B, SGLang 0.5.23, 2026-11-21)."""

HOST_RATIO = 1.5
"""A step that took this many times its prediction waited for the host."""
FLOOR_RISE_S, FLOOR_FALL, FLOOR_HIGHEST_S = 0.002, 0.0003, 0.04
"""How the floor moves. It rises by at most the first with every step that waited for the host. It falls by
the second, a share of it, with every other step. A step above the third was not slowed by a host: no host
takes so long. Seen: 512 tokens beside three decoding requests took 9 to 34 ms where 14 were predicted (as
above, 2026-11-22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMargin:
    """Few steps take longer than `ratio` times their prediction, or than `floor_s` where that is more."""

    ratio: float = FIRST
    floor_s: float = 0.0

    def bound_s(self, predicted_s: float) -> float:
        """The seconds that few steps of this prediction exceed."""
        return max(self.ratio * predicted_s, self.floor_s)

    def after(self, *, predicted_s: float, measured_s: float) -> LatencyMargin:
        """The bound after one more step: a violation raises it to what was seen, at most by a little."""
        bound_s = self.bound_s(predicted_s)
        if measured_s <= bound_s:
            return LatencyMargin(ratio=max(LOWEST, self.ratio - FALL), floor_s=self._lower_s())
        if HOST_RATIO * predicted_s < measured_s <= FLOOR_HIGHEST_S:
            return LatencyMargin(ratio=self.ratio, floor_s=min(measured_s, bound_s + FLOOR_RISE_S))
        return LatencyMargin(
            ratio=min(measured_s / predicted_s, self.ratio + RISE, HIGHEST), floor_s=self.floor_s
        )

    def without_a_step(self) -> LatencyMargin:
        """After a step that was not fused: the floor is forgotten, or no fused step would ever be tried."""
        return self if not self.floor_s else LatencyMargin(ratio=self.ratio, floor_s=self._lower_s())

    def _lower_s(self) -> float:
        lower_s = self.floor_s * (1.0 - FLOOR_FALL)
        return lower_s if lower_s > FLOOR_RISE_S else 0.0
