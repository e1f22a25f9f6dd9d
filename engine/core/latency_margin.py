"""How far fused steps exceed their prediction: a high quantile of measured over predicted, learned.

No guard covers a fused batch, and a budget planned to end just at the target misses it with every step that
takes longer than foreseen. The quantile is found by unequal steps: up to what was seen when it was exceeded,
down by very little when it was not. A request is in time when the p99 of its gaps is, which one late step in
fewer than 100 tokens undoes: 99% of requests need far rarer late steps than 99% of gaps do.

A step of few tokens may take what the host needs to launch it, whatever the device would: the floor. It is
learned from steps that no scatter of the device's explains, and forgotten within seconds: a host is slow in
stretches.
"""

from __future__ import annotations

from dataclasses import dataclass

RISE = 0.1
"""Of the ratio, at most, when it was exceeded."""
FALL = 0.00003
"""Of the ratio, with every step within it: a rise of 0.1 is forgotten in 3,300 steps, about two minutes. With
scatter of 3 to 20% it is then exceeded by 1 step in 300 to 2,000."""

LOWEST, HIGHEST = 1.0, 2.0
FIRST = 1.15
"""Before anything was measured: the 90th percentile of the fused predictor's error on shapes it had not seen
(H200, Llama-8B, SGLang 0.5.23, 2026-11-21)."""

HOST_RATIO = 1.5
"""A step that took this many times its prediction waited for the host."""
FLOOR_RISE_S, FLOOR_FALL, FLOOR_HIGHEST_S = 0.002, 0.0003, 0.04
"""With every step that waited, at most; of the floor, with every other; what no host takes (512 tokens beside
three decoding requests: 9 to 34 ms where 14 were predicted; as above, 2026-11-22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMargin:
    """The ratio, and the least seconds, that few steps exceed."""

    ratio: float = FIRST
    floor_s: float = 0.0

    def bound_s(self, predicted_s: float) -> float:
        """What few steps of this prediction exceed."""
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
