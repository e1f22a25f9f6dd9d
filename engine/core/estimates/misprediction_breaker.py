"""A circuit breaker over predictions: it opens when most recent steps took far longer than predicted.

A policy that plans by predictions is worse than a fixed plan when they are wrong (a profile of another
model, a throttled GPU). The breaker opens after about ten wrong steps in a row, so a short disturbance does
not open it, and it closes only after many more right ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.running_mean import LAST_20, blended

WRONG_RATIO = 1.7
"""A step that took more than this many times its prediction counts as wrong: contention explains 1.3 at most
(MuxWise 3.3.2), and 1.5 on small partitions of an H200 (docs/measurements)."""

OPEN_AT, CLOSE_AT = 0.5, 0.1
"""It opens when the share of wrong steps is above the first, and closes when it is at most the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MispredictionBreaker:
    """The running share of wrong predictions. While it `is_open`, predictions are not used."""

    wrong_share: float = 0.0
    is_open: bool = False

    def after(self, *, predicted_s: float, measured_s: float) -> MispredictionBreaker:
        """The breaker after one more step was measured."""
        share = blended(self.wrong_share, float(measured_s > WRONG_RATIO * predicted_s), LAST_20)
        is_open = share > (CLOSE_AT if self.is_open else OPEN_AT)
        if share == self.wrong_share and is_open == self.is_open:
            return self  # after most steps nothing changes
        return MispredictionBreaker(wrong_share=share, is_open=is_open)
