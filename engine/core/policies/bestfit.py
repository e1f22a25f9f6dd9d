"""What DRIFT and MuxWise share: the fewest decode SMs that meet the TBT target, layers beside each step.

The two differ in their partition groups, in whether a contention guard widens the predictions, and in their
rule for preemption. Mechanisms can be switched off one by one, as the papers' ablations do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdmuxd.engine.core.batching import form_prefill_batch
from pdmuxd.engine.core.guard import ContentionGuard, guard_cell
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.layerwise import (
    ALONE_SLICE_S,
    Plan,
    Work,
    decide_split,
    drain_to_preempt,
    layers_for,
    new_work,
    next_work,
)
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    DecisionNumbers,
    Feedback,
    Mode,
    Observation,
    PrefillSample,
    PrefillView,
    Reason,
)

SHRINK_MARGIN = 0.95
"""Decode gives SMs back only when the smaller group meets this share of the target, so that a batch at
the boundary does not switch at every step."""


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

    def initial_state(self) -> BestFitState:
        """The guard as it was profiled."""
        return BestFitState(guard=self.context.guard)

    def decide(self, obs: Observation, state: BestFitState) -> tuple[Decision, BestFitState]:
        """MuxWise figure 12, DRIFT algorithm 1: the prefill, then the split, then the layers of this step."""
        layers = self.context.layers
        overtaking = self._preempting_work(obs) if self.options.preemption else None
        if overtaking is not None and obs.prefill is not None and obs.prefill.layers_in_flight:
            return drain_to_preempt(obs), state
        decision = decide_split(
            obs,
            self.table,
            overtaking or next_work(obs, layers),
            plan=lambda work: self.best_fit(obs, work, state.guard),
            alone_layers=self.alone_layers,
        )
        if not self.options.query_sync and obs.decode.bs and decision.mode is Mode.SPLIT:
            decision = replace(decision, blocking_merge=self._launches_last(obs, decision))
        return decision, state

    def learn(self, feedback: Feedback, state: BestFitState) -> BestFitState:
        """A decode step slower than its bound raises the guard's cell at once (MuxWise 3.3.2)."""
        guard = self.guard_after(feedback, state.guard)
        return state if guard is state.guard else BestFitState(guard=guard)

    def learn_prefill(self, sample: PrefillSample, state: BestFitState) -> BestFitState:  # noqa: ARG002 - the interface
        """Nothing is learned from prefills."""
        return state

    def adopt(self, state: BestFitState, before: PolicyContext, *, is_refined: bool) -> BestFitState:
        """The guard is of predictions: what was raised here stays with them."""
        return BestFitState(guard=self.guard_adopted(state.guard, before, is_refined=is_refined))

    def guard_after(self, feedback: Feedback, guard: ContentionGuard) -> ContentionGuard:
        """The guard after a step; the same one if it was within its bound."""
        if not self.options.guard or feedback.mode is not Mode.SPLIT or feedback.predicted_s <= 0.0:
            return guard
        decode_sms = self.table.groups[feedback.partition_id].decode_sms
        cell = guard_cell(decode_sms, feedback.prefill, feedback.decode)
        return guard.learned(cell, feedback.measured_s / feedback.predicted_s)

    def guard_adopted(
        self, guard: ContentionGuard, before: PolicyContext, *, is_refined: bool
    ) -> ContentionGuard:
        """The guard of this context, with what was raised here if it is of the same profile."""
        return guard.updated(before.guard, self.context.guard) if is_refined else self.context.guard

    def alone_layers(self, work: Work) -> int:
        """A slice of the prefill when nothing decodes."""
        layers = self.context.layers
        if not self.options.layerwise:
            return layers
        prefill_s = self.context.latency.prefill_s(work.shape, self.table.rules.total_sms)
        return max(0, layers_for(ALONE_SLICE_S, prefill_s, layers) - work.layers_in_flight)

    def best_fit(self, obs: Observation, work: Work, guard: ContentionGuard) -> Plan:
        """The first split whose worst-case decode meets the target; the widest if none does."""
        latency = self.context.latency
        target_s = self.context.planned_tbt_s(obs.tbt_target_s)
        rejected: list[Alternative] = []
        partition_id, decode_s, ratio, worst_s = self.table.PREFILL_ONLY, 0.0, 1.0, 0.0
        reason = Reason.TBT_INFEASIBLE
        for partition_id in self.table.split_indices:
            decode_sms = self.table.groups[partition_id].decode_sms
            decode_s = latency.decode_s(obs.decode, decode_sms)
            ratio = guard.ratio(decode_sms, work.shape, obs.decode) if self.options.guard else 1.0
            worst_s = decode_s * ratio
            shrinks = obs.partition_id in self.table.split_indices and partition_id < obs.partition_id
            if worst_s <= target_s * (SHRINK_MARGIN if shrinks else 1.0):
                reason = Reason.BEST_FIT
                break
            rejected.append(Alternative(label=f"decode_sms={decode_sms}", predicted_s=worst_s))
        prefill_s = latency.prefill_s(work.shape, self.table.groups[partition_id].prefill_sms)
        count = layers_for(worst_s, prefill_s, self.context.layers) - work.layers_in_flight
        numbers = DecisionNumbers(
            predicted_decode_s=decode_s,
            predicted_prefill_s=prefill_s,
            guard_ratio=ratio,
            tbt_target_s=obs.tbt_target_s,
            tbt_slack_s=None if obs.tbt_target_s is None else obs.tbt_target_s - worst_s,
        )
        layers = max(0, count) if self.options.layerwise else self.context.layers
        return Plan(
            partition_id=partition_id, layers=layers, reason=reason, numbers=numbers, rejected=tuple(rejected)
        )

    def _preempting_work(self, obs: Observation) -> Work | None:
        """A waiting request that may overtake the running prefill at the next layer boundary, or None.

        MuxWise: the first that is shorter than what is left of the running one; DRIFT: the first.
        The running one must still meet its own deadline afterwards; nothing is preempted twice and nothing
        preempts a preemptor (MuxWise 3.4.2, DRIFT algorithm 1 lines 6-20; invariants 3 and 4).
        """
        running = obs.prefill
        if running is None or obs.preempted is not None or running.was_preempted:
            return None
        sms = self.prefill_sms(obs)
        left_s = self.left_s(running, sms)
        headroom_s = running.earliest_deadline_s - obs.now_s - left_s
        for request in obs.waiting if self.options.only_shorter_preempt else obs.waiting[:1]:
            new_s = self.context.latency.request_s(request.new_tokens, request.reused_tokens, sms)
            if new_s <= headroom_s and (new_s < left_s or not self.options.only_shorter_preempt):
                break
        else:
            return None
        batch = form_prefill_batch(obs, queue=(request,))
        return new_work(batch, self.context.layers, preempt=True) if batch else None

    def prefill_sms(self, obs: Observation) -> int:
        """The SMs that prefill has, or would have in the first split."""
        sms = self.table.groups[obs.partition_id].prefill_sms
        return sms or self.table.groups[self.table.split_indices[0]].prefill_sms

    def left_s(self, running: PrefillView, sms: int) -> float:
        """Predicted seconds that a running layer-wise prefill still needs."""
        layers = self.context.layers
        whole_s = self.context.latency.prefill_s(running.shape, sms)
        return whole_s * (layers - running.layers_done) / layers

    def _launches_last(self, obs: Observation, decision: Decision) -> bool:
        launched = obs.prefill.layers_launched if obs.prefill is not None and not decision.preempt else 0
        if decision.resume and obs.preempted is not None:
            launched = obs.preempted.layers_launched
        has_prefill = obs.prefill is not None or bool(decision.admit) or decision.resume
        return has_prefill and launched + decision.prefill_layers >= self.context.layers
