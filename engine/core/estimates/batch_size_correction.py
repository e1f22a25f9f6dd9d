"""What fused steps of each size typically take over their prediction, learned while serving.

A step runs as a captured graph of the next size up, and what the products of a size take does not grow evenly
with it: another kernel serves 224 rows than 192, and 448 rows take longer than 512. A fitted line has none of
that. Measured over predicted, by size, is 1.0 to 1.4 on an H200 with CodeLlama-34B and 1.0 to 1.2 with
Llama-8B; once it is known, half of the steps are within 1 to 4% (docs/measurements/h200.md, 2026-11-22).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.running_mean import LAST_20, blended, weight_after, within

SIZES = (*range(32, 321, 32), *range(384, 1025, 64), *range(1152, 2561, 128))
"""Tokens of a step, decoding requests included: from one to the next are taken as one size."""
_AT = tuple(bisect_left(SIZES, tokens) for tokens in range(SIZES[-1] + 1))
"""The place in `SIZES` of a step of so many tokens: looked up for every size in every decision."""
FORGET_S = 5.0
"""Seconds of steps after which half of what a size took is forgotten where sizes are compared, and of how far
fused steps scatter while none is run."""


@dataclass(frozen=True, slots=True)
class BatchSizeCorrection:
    """A ratio per size. Sizes beyond the last have 1: no graph is captured of them.

    A size of which no step was seen has the larger ratio of the nearest that were, above and below it, and 1
    while there is none. A device that takes longer than its profile takes longer for all sizes, and where the
    margin has become narrow for those that are seen often, the first step of a rare one would be late.
    """

    ratios: tuple[float, ...] = (1.0,) * len(SIZES)
    steps: tuple[int, ...] = (0,) * len(SIZES)
    """Seen of each size, counted as far as it matters."""
    seen_s: tuple[float, ...] = (0.0,) * len(SIZES)
    """When each size was seen last, by `clock_s`."""
    clock_s: float = 0.0
    """Seconds of steps, beside layers or fused, so far."""
    level: float = 1.0
    """Of steps of all sizes."""
    level_s: float = 0.0
    """When a step of any size was seen last."""
    hopes: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """Of each size, by what was seen of it and how long ago."""
    hoped_level: float = field(init=False, repr=False, compare=False)
    """Of all sizes, by how long ago any was seen."""

    def __post_init__(self) -> None:
        hoped = 1.0 + (self.level - 1.0) * math.exp2((self.level_s - self.clock_s) / FORGET_S)
        hopes = [
            hoped + math.exp2((last_s - self.clock_s) / FORGET_S) * (ratio - hoped)
            for ratio, last_s in zip(self.ratios, self.seen_s, strict=True)
        ]
        object.__setattr__(self, "hoped_level", hoped)
        object.__setattr__(self, "hopes", tuple(hopes))

    def ratio(self, tokens: int) -> float:
        """Typical over predicted seconds of a step of so many tokens, by the last that were seen: for how
        much fits into a step."""
        return self.ratios[_AT[tokens]] if tokens < len(_AT) else 1.0

    def hoped(self, tokens: int) -> float:
        """The same for comparing sizes with each other, and fused steps with splits: what was not tried of
        late is taken to be as what was, and all of it as predicted. A device that was slow for seconds would
        else stay in what it did meanwhile: the rest would look slow until it is tried, and not be tried."""
        return self.hopes[_AT[tokens]] if tokens < len(_AT) else self.hoped_level

    def passed(self, seconds: float) -> BatchSizeCorrection:
        """The value after a step that says nothing of sizes."""
        return replace(self, clock_s=self.clock_s + seconds)

    def after(self, tokens: int, *, predicted_s: float, measured_s: float) -> BatchSizeCorrection:
        """The ratios after one more step."""
        at = bisect_left(SIZES, tokens)
        if at == len(SIZES):
            return self.passed(measured_s)
        old, seen = self.ratios[at], self.steps[at]
        weight = weight_after(seen + 1)  # what was assumed before the first counts as one step
        new = within(blended(old, measured_s / predicted_s, weight))
        ratios, steps = list(self.ratios), self.steps
        ratios[at] = new
        for unseen, beyond in ((range(at - 1, -1, -1), -1), (range(at + 1, len(SIZES)), 1)):
            last = next((i for i in unseen if steps[i]), None)
            between = max(new, ratios[last]) if last is not None else new
            for i in range(at + beyond, last if last is not None else unseen.stop, beyond):
                ratios[i] = between
        if seen * LAST_20 < 1.0:
            steps = (*steps[:at], seen + 1, *steps[at + 1 :])
        clock_s = self.clock_s + measured_s
        seen_s = (*self.seen_s[:at], clock_s, *self.seen_s[at + 1 :])
        level = blended(self.level, within(measured_s / predicted_s), LAST_20)
        return BatchSizeCorrection(tuple(ratios), steps, seen_s, clock_s, level, clock_s)
