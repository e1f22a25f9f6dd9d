"""Rank 0's decision: look, ask the policy, say which streams that means."""

from __future__ import annotations

from pdmuxd.engine.core.types import Decision, Mode, Observation
from pdmuxd.engine.sglang.loop.feasible import feasible
from pdmuxd.engine.sglang.loop.turn import Done, Turn
from pdmuxd.engine.sglang.loop.view import View
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.steering import Steering


class Planner:
    """Makes a Turn at each safe point."""

    def __init__(self, *, view: View, ledger: Ledger, steering: Steering, layers: int) -> None:
        self._view = view
        self._ledger = ledger
        self._steering = steering
        self._layers = layers

    def plan(self, done: Done, now_s: float) -> Turn:
        """What is done was collected before: the decision is about what is left."""
        steering = self._steering
        if steering.is_changing and not self._view.is_prefilling:
            steering.change()
        if not self._view.has_work:
            return Turn(done=done)
        decision, behind = self._decide(now_s)
        looked_up = decision.admit
        # Nothing but the end of a prefill changes the cache between a request's arrival and here.
        if not done.finish and not done.dropped:
            looked_up = self._ledger.without_new(looked_up)
        if self._ledger.look_up(looked_up):
            # What they share with the cache came or went while they waited: decide on what is true now.
            decision, behind = self._decide(now_s)
        if decision.demote:
            self._ledger.demote(decision.demote)
        return Turn(
            done=done,
            looked_up=looked_up,
            decision=decision,
            stream_group=steering.stream_group(decision),
            behind=behind,
        )

    def _decide(self, now_s: float) -> tuple[Decision, bool]:
        """What to do, and whether the prefill it admits comes behind the one that runs."""
        decision = self._ask(self._view.observe(now_s))
        goes_on = decision.mode is Mode.SPLIT and decision.decode_steps and not decision.blocking_merge
        if goes_on and not decision.preempt and self._view.is_ending:
            behind = self._decide_behind(now_s)
            if behind is not None:
                return behind, True
        return decision, False

    def _decide_behind(self, now_s: float) -> Decision | None:
        """The next split prefill. Otherwise its SMs are idle from the end of the one that runs until the step
        after that is launched: 14 ms per batch (one H200, Llama-8B, TBT target 20 ms, 2026-11-22)."""
        steering = self._steering
        before = steering.state
        decision = self._ask(self._view.observe_behind(now_s))
        if decision.mode is Mode.SPLIT and decision.admit and decision.decode_steps:
            return decision
        steering.state = before
        return None

    def _ask(self, obs: Observation) -> Decision:
        steering = self._steering
        return feasible(steering.decide(obs), obs, steering.policy.table, self._layers)
