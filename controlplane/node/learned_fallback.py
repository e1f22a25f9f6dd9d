"""The fixed plan that serves while predictions prove wrong: which one was learned, and what it costs."""

from __future__ import annotations

from typing import Protocol

import msgspec

from pdmuxd.engine.core.errors import EngineError


class FallbackCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed plan, replayed. Requests per second with TTFT and the p99 of their gaps in time."""

    step_tokens: int
    """Of a fused step, decoding requests included."""
    goodput_per_s: float
    slower_goodput_per_s: float
    """On a device that is slower than predicted by `slower_ratio`, as it is where the plan is used."""


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """What replays of recent traffic have said of one model on one device."""

    step_tokens: int
    policy: str
    """In force then; what it is compared with."""
    learned_s: float
    """Unix time."""
    requests: int
    goodput_per_s: float
    """Of the policy in force."""
    slower_goodput_per_s: float
    """The same on the slower device, had it known how slow that is."""
    slower_ratio: float
    candidates: tuple[FallbackCandidate, ...]

    @property
    def chosen(self) -> FallbackCandidate:
        return next(one for one in self.candidates if one.step_tokens == self.step_tokens)

    @property
    def regret_ratio(self) -> float:
        """What is lost where predictions are right after all; below 0 where the policy in force is worse."""
        return _lost_ratio(self.goodput_per_s, self.chosen.goodput_per_s)

    @property
    def slower_regret_ratio(self) -> float:
        """What is lost against a policy in force that knew how slow the device is."""
        return _lost_ratio(self.slower_goodput_per_s, self.chosen.slower_goodput_per_s)


class FallbackState(msgspec.Struct, frozen=True, kw_only=True):
    """What serves while predictions prove wrong, and whether another is being looked for."""

    step_tokens: int
    learned: Fallback | None
    """None: nothing was learned for this engine yet, so it is the plan that did best on chat."""
    is_learning: bool
    reason: str | None = None
    """Why the last look came to nothing."""


class FallbackLearning(Protocol):
    """Called in the event loop."""

    def state(self) -> FallbackState:
        """State of the engine that serves."""

    async def begin(self) -> FallbackState:
        """Look for a better one, in the background.

        Raises: EngineError if there is no engine or too little traffic, ConflictError if it is looked for
        already, or too many replays wait.
        """


class NoFallback:
    """Where no daemon runs."""

    def state(self) -> FallbackState:
        """Raises: EngineError."""
        raise EngineError("no daemon is running, so nothing is learned of its traffic")

    async def begin(self) -> FallbackState:
        """Raises: EngineError."""
        return self.state()


def _lost_ratio(policy_per_s: float, plan_per_s: float) -> float:
    return round(1.0 - plan_per_s / policy_per_s, 4) if policy_per_s > 0.0 else 0.0
