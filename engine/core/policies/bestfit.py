"""What DRIFT and MuxWise share: the fewest decode SMs that meet the TBT target, layers beside each step.

The two differ in their partition groups, in whether a contention guard widens the predictions, and in their
rule for preemption. Mechanisms can be switched off one by one, as the papers' ablations do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PolicyContext
from pdmuxd.engine.core.policies.layerwise import (
    SplitPlans,
    Work,
    drain_to_preempt,
    new_work,
    next_work,
    split_decision,
    without_prefill,
)
from pdmuxd.engine.core.queueing import form_prefill_batch, shape_of
from pdmuxd.engine.core.types import (
    Decision,
    Feedback,
    Mode,
    Observation,
    PrefillFeedback,
    WaitingRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """Mechanisms of a split policy; each can be ablated."""

    guard: bool = True
    """Multiply predicted decode by the contention guard (MuxWise 3.3.2)."""
    preemption: bool = False
    only_shorter_preempt: bool = True
    """MuxWise lets a short prefill overtake a long one; DRIFT's algorithm 1 asks for headroom alone."""
    layerwise: bool = True
    """Launch only the layers that a decode step covers; off, the whole phase at once (MuxWise figure 9)."""
    query_sync: bool = True
    """Merge a finished prefill without blocking; off, decode waits for its last layer (MuxWise 3.2.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestFitState:
    """What is learned while serving: how much decode suffers from prefill."""

    guard: ContentionGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class BestFitPolicy:
    """Best-fit split, layer-wise prefill, optional guard and preemption."""

    name: str
    context: PolicyContext
    table: PartitionTable
    options: SplitOptions
    splits: SplitPlans

    @classmethod
    def build(
        cls, name: str, context: PolicyContext, table: PartitionTable, options: SplitOptions
    ) -> BestFitPolicy:
        """Build it on the splits of a table."""
        splits = SplitPlans(
            context=context, table=table, uses_guard=options.guard, layerwise=options.layerwise
        )
        return cls(name=name, context=context, table=table, options=options, splits=splits)

    def initial_state(self) -> BestFitState:
        """The guard as it was profiled."""
        return BestFitState(guard=self.context.guard)

    def learn(self, feedback: Feedback, state: BestFitState) -> BestFitState:
        """A decode step slower than its bound raises the guard's cell at once (MuxWise 3.3.2)."""
        guard = self.splits.learned(feedback, state.guard)
        return state if guard is state.guard else BestFitState(guard=guard)

    def learn_prefill(self, feedback: PrefillFeedback, state: BestFitState) -> BestFitState:  # noqa: ARG002
        """Nothing is learned from prefills."""
        return state

    def adopt(self, state: BestFitState, before: PolicyContext, *, is_refined: bool) -> BestFitState:
        """The guard corrects predictions: what was raised here belongs to these predictions."""
        return BestFitState(guard=self.splits.adopted(state.guard, before, is_refined=is_refined))

    def decide(self, obs: Observation, state: BestFitState) -> tuple[Decision, BestFitState]:
        """MuxWise figure 12, DRIFT algorithm 1: the prefill, then the split, then the layers of this step."""
        overtaking = self._preempting_work(obs) if self.options.preemption else None
        if overtaking is not None and obs.prefill is not None and obs.prefill.layers_in_flight:
            return drain_to_preempt(obs), state
        work = overtaking or next_work(obs, self.context.layers)
        if work is None:
            decision = without_prefill(obs, self.table)
        else:
            decision = split_decision(obs, work, self.splits.best_fit(obs, work, state.guard))
        if not self.options.query_sync and obs.decode.bs and decision.mode is Mode.SPLIT:
            decision = replace(decision, blocking_merge=self._launches_last(obs, decision))
        return decision, state

    def plans(self, obs: Observation, state: BestFitState) -> tuple[Plan, ...]:
        """Every split for the prefill under way, or for the next one."""
        work = next_work(obs, self.context.layers)
        return self.splits.every(obs, work, state.guard) if work is not None else ()

    def _preempting_work(self, obs: Observation) -> Work | None:
        """Waiting requests that may overtake the running prefill at the next layer boundary, or None.

        A batch in order of arrival: of those that take less together than what is left of the running one
        (MuxWise, from the first such request on), or than its headroom (DRIFT).
        The running one must still meet its own deadline afterwards; nothing is preempted twice and nothing
        preempts a preemptor (MuxWise 3.4.2, DRIFT algorithm 1 lines 6-20; invariants 3 and 4).
        """
        running = obs.prefill
        if running is None or obs.preempted is not None or running.was_preempted:
            return None
        sms = self.table.prefill_sms(obs.partition_id)
        left_s = self.splits.left_s(running, sms)
        headroom_s = running.earliest_deadline_s - obs.now_s - left_s
        only_shorter = self.options.only_shorter_preempt
        chosen: tuple[WaitingRequest, ...] = ()
        for request in obs.waiting:
            new_s = self.context.latency.prefill_s(shape_of((*chosen, request)), sms)
            if new_s <= headroom_s and (new_s < left_s or not only_shorter):
                chosen = (*chosen, request)
            elif chosen or not only_shorter:
                break
        batch = form_prefill_batch(obs, queue=chosen) if chosen else ()
        return new_work(batch, self.context.layers, preempt=True) if batch else None

    def _launches_last(self, obs: Observation, decision: Decision) -> bool:
        launched = obs.prefill.layers_launched if obs.prefill is not None and not decision.preempt else 0
        if decision.resume and obs.preempted is not None:
            launched = obs.preempted.layers_launched
        has_prefill = obs.prefill is not None or bool(decision.admit) or decision.resume
        return has_prefill and launched + decision.prefill_layers >= self.context.layers
