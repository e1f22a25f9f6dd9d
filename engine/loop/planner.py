"""Rank 0's decision: look, ask the policy, say which streams that means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdmuxd.engine.core.types import Decision, Mode, Observation
from pdmuxd.engine.loop.decode_turns import DecodeTurns
from pdmuxd.engine.loop.feasible import admitted_tokens, feasible, nothing_begun
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.requests import RefusalCause, RequestBook
from pdmuxd.engine.loop.step_plan import Done, StepPlan
from pdmuxd.engine.loop.view import View

EXPIRY_LOOK_S = 0.25
"""Between two looks for requests that have waited for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A decision, and what the policy remembers if it is carried out."""

    obs: Observation
    decision: Decision
    state: object
    behind: bool = False
    """What it admits is launched behind the prefill that runs."""


class Planner:
    """Makes a StepPlan at each safe point."""

    def __init__(
        self,
        *,
        view: View,
        turns: DecodeTurns,
        ledger: RequestBook,
        policy_runtime: PolicyRuntime,
        layers: int,
        waits_for_device: Callable[[int, int], bool],
    ) -> None:
        """`waits_for_device`: whether a prefill of so many tokens, formed for a group's streams, would wait
        for all that the device has in flight."""
        self._view = view
        self._turns = turns
        self._ledger = ledger
        self._policy_runtime = policy_runtime
        self._layers = layers
        self._waits_for_device = waits_for_device
        self._looked_s = 0.0

    def plan(self, done: Done, now_s: float) -> StepPlan:
        """What is done was collected before: the decision is about what is left."""
        policy_runtime = self._policy_runtime
        if policy_runtime.is_changing and not self._view.is_prefilling:
            policy_runtime.change()
        if not self._view.has_work:
            return StepPlan(done=done)
        chosen = self._choose(now_s)
        looked_up = chosen.decision.admit
        # Nothing but the end of a prefill changes the cache between a request's arrival and here.
        if not done.finish and not done.dropped:
            looked_up = self._ledger.without_new(looked_up)
        if self._ledger.look_up(looked_up):
            # What they share with the cache came or went while they waited: decide on what is true now.
            chosen = self._choose(now_s)
        decision = chosen.decision
        policy_runtime.commit(chosen.state)
        if decision.decode_steps:
            self._turns.launched(decision.sits_out)
        policy_runtime.shadowed(chosen.obs, decision)
        if decision.deprioritize:
            self._ledger.deprioritize(decision.deprioritize)
        return StepPlan(
            done=done,
            looked_up=looked_up,
            refused=self._refused(decision, now_s),
            decision=decision,
            stream_group=policy_runtime.stream_group(decision),
            behind=chosen.behind,
            sits_out=decision.sits_out,
        )

    def _refused(self, decision: Decision, now_s: float) -> tuple[tuple[str, RefusalCause], ...]:
        """Requests that the policy refuses, and those that may not wait any longer and are not begun now. The
        latter are looked for a few times a second: there may be thousands that wait."""
        refused = dict.fromkeys(decision.refuse, RefusalCause.DEADLINE_UNREACHABLE)
        if now_s - self._looked_s >= EXPIRY_LOOK_S:
            self._looked_s = now_s
            refused.update(self._ledger.expired(now_s))
        for name in decision.admit:
            refused.pop(name, None)
        return tuple(refused.items())

    def _choose(self, now_s: float) -> _Choice:
        """What to do; nothing is remembered of it yet, so it can be chosen again."""
        chosen = self._ask(self._view.observe(now_s))
        decision = chosen.decision
        goes_on = decision.mode is Mode.SPLIT and decision.decode_steps and not decision.blocking_merge
        if goes_on and not decision.preempt and self._view.is_ending:
            return self._choose_behind(now_s) or chosen
        return chosen

    def _choose_behind(self, now_s: float) -> _Choice | None:
        """The next split prefill. Otherwise its SMs are idle from the end of the one that runs until the step
        after that is launched: 14 ms per batch (one H200, Llama-8B, TBT target 20 ms, 2026-11-22)."""
        chosen = self._ask(self._view.observe_behind(now_s))
        decision = chosen.decision
        if decision.mode is not Mode.SPLIT or not decision.admit or not decision.decode_steps:
            return None
        tokens = admitted_tokens(decision, chosen.obs)
        if self._waits_for_device(tokens, self._policy_runtime.stream_group(decision)):
            return None  # decode would wait for layers of the prefill that runs
        return replace(chosen, behind=True)

    def _ask(self, obs: Observation) -> _Choice:
        decision, state = self._policy_runtime.decide(obs)
        decision = feasible(decision, obs, self._policy_runtime.policy.table, self._layers)
        if self._policy_runtime.is_changing:
            decision = nothing_begun(decision, obs)
        return _Choice(obs=obs, decision=decision, state=state)
