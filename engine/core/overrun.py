"""How far fused steps exceed their prediction: a high quantile of measured over predicted, learned.

No guard covers a fused batch, and a budget planned to end just at the target misses it with every step that
takes longer than foreseen. The quantile is found by unequal steps: up to what was seen when it was exceeded,
down by very little when it was not. A request is in time when the p99 of its gaps is, which one late step in
fewer than 100 tokens undoes: 99% of requests need far rarer late steps than 99% of gaps do.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """The ratio that few steps exceed."""

    ratio: float = FIRST

    def after(self, *, predicted_s: float, measured_s: float) -> Overrun:
        """The bound after one more step: a violation raises it to what was seen, at most by RISE."""
        seen = measured_s / predicted_s
        if seen > self.ratio:
            return Overrun(ratio=min(seen, self.ratio + RISE, HIGHEST))
        return Overrun(ratio=max(LOWEST, self.ratio - FALL))
