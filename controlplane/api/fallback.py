"""What serves while predictions prove wrong, over REST: which plan, how it was learned, what it costs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.node.learned_fallback import Fallback, FallbackLearning, FallbackState

_GOODPUT = "Requests with TTFT and the p99 of their gaps in time, per second."


class CandidateOut(BaseModel):
    """A fixed plan, replayed."""

    step_tokens: int = Field(examples=[512])
    goodput_per_s: float = Field(description=_GOODPUT)
    slower_goodput_per_s: float = Field(description="The same on a device slower by `slower_ratio`.")


class FallbackLearnedOut(BaseModel):
    """What a replay of recent traffic has said."""

    learned_at: datetime
    policy: str = Field(examples=["auto"], description="In force then; what the plans are compared with.")
    requests: int = Field(description="Captured requests that were replayed.")
    goodput_per_s: float = Field(description=f"Of the policy in force. {_GOODPUT}")
    slower_goodput_per_s: float = Field(description="The same, had it known how slow the device is.")
    slower_ratio: float = Field(
        examples=[1.7], description="By so much a step must exceed its prediction to count as wrong."
    )
    regret_ratio: float = Field(
        description="Share of that goodput that the fallback loses where predictions are right after all; "
        "below 0 where the policy in force is worse than a fixed plan."
    )
    slower_regret_ratio: float = Field(description="The same on the slower device, where it is used.")
    candidates: list[CandidateOut]

    @classmethod
    def of(cls, found: Fallback) -> Self:
        return cls(
            learned_at=datetime.fromtimestamp(found.learned_s, UTC),
            policy=found.policy,
            requests=found.requests,
            goodput_per_s=found.goodput_per_s,
            slower_goodput_per_s=found.slower_goodput_per_s,
            slower_ratio=found.slower_ratio,
            regret_ratio=found.regret_ratio,
            slower_regret_ratio=found.slower_regret_ratio,
            candidates=[
                CandidateOut(
                    step_tokens=one.step_tokens,
                    goodput_per_s=one.goodput_per_s,
                    slower_goodput_per_s=one.slower_goodput_per_s,
                )
                for one in found.candidates
            ],
        )


class FallbackOut(BaseModel):
    """The plan that serves while predictions prove wrong: fused steps of one size, in order of arrival."""

    plan: str = Field(examples=["chunked:512"], description="As a policy's specification.")
    step_tokens: int = Field(description="Of a step, decoding requests included.")
    learned: FallbackLearnedOut | None = Field(
        description="Null until something was learned for this engine."
    )
    is_learning: bool
    reason: str | None = Field(description="Why the last look came to nothing.")

    @classmethod
    def of(cls, state: FallbackState) -> Self:
        return cls(
            plan=f"chunked:{state.step_tokens}",
            step_tokens=state.step_tokens,
            learned=None if state.learned is None else FallbackLearnedOut.of(state.learned),
            is_learning=state.is_learning,
            reason=state.reason,
        )


def fallback_routes(fallback: FallbackLearning) -> APIRouter:
    """The routes under `/policy/fallback`."""
    router = admin_router(prefix="/policy/fallback", tags=["policy"])

    # Asynchronous: what is learned belongs to the event loop.
    @router.get("", responses=documented(503))
    async def get_fallback() -> FallbackOut:
        """Show what serves while predictions prove wrong, and its regret against the policy in force."""
        return FallbackOut.of(fallback.state())

    @router.post("", status_code=202, responses=documented(409, 503))
    async def learn_fallback() -> FallbackOut:
        """Look for a better one now, in replays of the last hour's traffic. It is used once it is found."""
        return FallbackOut.of(await fallback.begin())

    return router
