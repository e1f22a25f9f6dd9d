"""Whether predictions can be trusted: how often steps lately took far longer than predicted.

A policy that plans by predictions is worse than a fixed plan when they are wrong (a profile of another
model, a throttled GPU). Trust is lost slowly enough to survive a hiccup, and won back more slowly still.
"""

from __future__ import annotations

from dataclasses import dataclass

WRONG_RATIO = 1.7
"""A step that took this many times its prediction was not predicted: contention explains 1.3 at most (MuxWise
3.3.2), and 1.5 on small partitions of an H200 (docs/measurements)."""

WEIGHT = 0.05
"""Of the newest step in the running share of wrong ones: about the last 20 steps count."""

OPEN_AT, CLOSE_AT = 0.5, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MispredictionBreaker:
    """The running share of wrong predictions, and whether they are trusted."""

    wrong_share: float = 0.0
    is_open: bool = False

    def after(self, *, predicted_s: float, measured_s: float) -> MispredictionBreaker:
        """The trust after one more step was measured."""
        wrong = 1.0 if measured_s > WRONG_RATIO * predicted_s else 0.0
        share = (1.0 - WEIGHT) * self.wrong_share + WEIGHT * wrong
        is_open = share > (CLOSE_AT if self.is_open else OPEN_AT)
        if share == self.wrong_share and is_open == self.is_open:
            return self  # as after most steps: none was wrong for long
        return MispredictionBreaker(wrong_share=share, is_open=is_open)
