"""How long to wait before an engine is started again."""

from __future__ import annotations

from dataclasses import dataclass

HEALTHY_S = 10.0
"""An engine that served this long starts the back-off anew when it ends."""


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Doubles from `initial_s` up to `max_s` with each engine that did not stay healthy."""

    initial_s: float
    max_s: float
    failures: int = 0

    def delay_s(self, *, served_s: float) -> float:
        """The delay after an engine that served for `served_s` seconds (0 if it never did) ended."""
        if served_s >= HEALTHY_S:
            self.failures = 0
        # 2**60 exceeds any limit; without the bound the power would overflow after days of failing.
        delay_s = min(self.max_s, self.initial_s * 2.0 ** min(self.failures, 60))
        self.failures += 1
        return delay_s
