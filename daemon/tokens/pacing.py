"""How many steps' tokens are written to a client at once, on a host that cannot write each by itself.

A write costs the kernel, this loop and the client's about as much with one event as with four. Where the loop
has too little of a processor, tokens of all answers come late; several steps' events in one write come later
than they were made, but within their target. The events stay what they are.
"""

from __future__ import annotations

import math

MOST_STEPS = 8
GOAL_RATIO = 0.7
"""Of a processor: what the loop may need. Above it a burst of requests waits for tokens, and these for it."""
_LEAST_RATIO = 0.1
"""What is left for writing where all else takes more than the goal."""
_CALM_LOOKS = 5
PATIENCE_RATIO = 0.8
"""Of a TBT target: an event may wait until so much of it has passed since the one before it."""
MEASURED_AGAIN_S = 60.0
"""Gaps say again how late delivery is when the last minute has none that were made longer on purpose."""


class Pace:
    """Paces all answers of a daemon, in one event loop."""

    def __init__(self) -> None:
        self.steps = 1
        """Whose tokens are written at once, where the answers' targets allow it."""
        self.writing_s = 0.0
        """Seconds that writing has taken, by this loop's clock."""
        self.held = 0
        """Times that an answer's events waited for the next step."""
        self._calm = 0
        self._paced_at_s = -math.inf

    def plan(self, *, needed: float, writing: float, now_s: float) -> None:
        """Plan by what the loop needed of a processor since the last look, and what of it writing took.

        `needed` has the time that it waited for one, too. Fewer steps are planned after some calm looks.
        """
        if self.steps > 1:
            self._paced_at_s = now_s
        each_step = writing * self.steps
        allowed = max(_LEAST_RATIO, GOAL_RATIO - (needed - writing))
        wanted = min(MOST_STEPS, max(1, math.ceil(each_step / allowed)))
        if wanted >= self.steps:
            self.steps, self._calm = wanted, 0
            return
        self._calm += 1
        if self._calm >= _CALM_LOOKS:
            self.steps, self._calm = self.steps - 1, 0

    def has_paced(self, now_s: float) -> bool:
        """Whether gaps of the last minute were made longer on purpose."""
        return self.steps > 1 or now_s - self._paced_at_s < MEASURED_AGAIN_S
