"""How far fused steps exceed their prediction: a high quantile of measured over predicted, learned.

No guard covers a fused batch, and a budget planned to end just at the target misses it with every step that
takes longer than foreseen. The quantile is found by unequal steps: up by much when it was exceeded,
down by little when it was not, which balance where it is exceeded as often as allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

EXCEEDED_RATIO = 0.01
"""How often a step may take longer than the bound: what an attainment of 99% leaves."""

STEP = 0.1
"""Of the ratio, upward; downward it is `STEP * EXCEEDED_RATIO`, half of a rise in 50 steps."""

LOWEST, HIGHEST = 1.0, 2.0
FIRST = 1.15
"""Before anything was measured: the 90th percentile of the fused predictor's error on shapes it had not seen
(H200, Llama-8B, SGLang 0.5.23, 2026-11-21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """The ratio that few steps exceed."""

    ratio: float = FIRST

    def after(self, *, predicted_s: float, measured_s: float) -> Overrun:
        """The bound after one more step: a violation raises it toward what was seen, at most by STEP."""
        seen = measured_s / predicted_s
        if seen > self.ratio:
            return Overrun(ratio=min(seen, self.ratio + STEP, HIGHEST))
        return Overrun(ratio=max(LOWEST, self.ratio - STEP * EXCEEDED_RATIO))
