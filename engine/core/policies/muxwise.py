"""`muxwise`: the fewest decode SMs that meet the TBT target in the worst case; the rest prefill.

Source: MuxWise sections 3.2 to 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdmuxd.engine.core.batching import form_prefill_batch, shape_of
from pdmuxd.engine.core.guard import guard_cell
from pdmuxd.engine.core.partitions import PartitionTable, even_steps
from pdmuxd.engine.core.policies.base import PolicyContext, PolicyState
from pdmuxd.engine.core.policies.layerwise import (
    ALONE_SLICE_S,
    Plan,
    Work,
    decide_split,
    layers_for,
    next_work,
)
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    DecisionNumbers,
    Feedback,
    Mode,
    Observation,
    PrefillView,
    Reason,
)

SHRINK_MARGIN = 0.95
"""Decode gives SMs back only when the smaller group meets this share of the target, so that a batch at
the boundary does not switch at every step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxwisePolicy:
    """Best-fit split under the contention guard, layer-wise prefill, optional preemption."""

    name: str
    context: PolicyContext
    table: PartitionTable
    preemption: bool

    @classmethod
    def build(cls, context: PolicyContext, *, preemption: bool) -> MuxwisePolicy:
        """Six splits at 16-SM steps (MuxWise 3.3.2)."""
        name = "muxwise:preempt" if preemption else "muxwise"
        return cls(name=name, context=context, table=even_steps(context.rules), preemption=preemption)

    def initial_state(self) -> PolicyState:
        """The guard as it was profiled."""
        return PolicyState(guard=self.context.guard)

    def decide(self, obs: Observation, state: PolicyState) -> tuple[Decision, PolicyState]:
        """MuxWise figure 12: pick the prefill, then the split, then the layers of this step."""
        layers = self.context.layers
        overtaking = self._preempting_work(obs) if self.preemption else None
        if overtaking is not None and obs.prefill is not None and obs.prefill.layers_in_flight:
            decode_steps = 1 if obs.decode.bs else 0
            return Decision(
                mode=Mode.SPLIT,
                group=obs.group,
                decode_steps=decode_steps,
                reason=Reason.PREEMPT_WHEN_DRAINED,
            ), state
        work = overtaking or next_work(obs, layers)

        def alone(work: Work) -> int:
            prefill_s = self.context.latency.prefill_s(work.shape, self.table.rules.total_sms)
            return max(0, layers_for(ALONE_SLICE_S, prefill_s, layers) - work.layers_in_flight)

        decision = decide_split(
            obs, self.table, work, plan=lambda work: self._best_fit(obs, work, state), alone_layers=alone
        )
        return decision, state

    def learn(self, feedback: Feedback, state: PolicyState) -> PolicyState:
        """A decode step slower than its bound raises the guard's cell at once (MuxWise 3.3.2)."""
        if feedback.predicted_decode_s <= 0.0:
            return state
        cell = guard_cell(feedback.group, feedback.prefill, feedback.decode)
        guard = state.guard.learned(cell, feedback.measured_decode_s / feedback.predicted_decode_s)
        return state if guard is state.guard else replace(state, guard=guard)

    def _best_fit(self, obs: Observation, work: Work, state: PolicyState) -> Plan:
        """The first split whose worst-case decode meets the target; the widest if none does."""
        latency = self.context.latency
        target_s = obs.tbt_target_s if obs.tbt_target_s is not None else float("inf")
        rejected: list[Alternative] = []
        group, decode_s, ratio, worst_s = self.table.PREFILL_ONLY, 0.0, 1.0, 0.0
        reason = Reason.TBT_INFEASIBLE
        for group in self.table.split_indices:
            decode_s = latency.decode_s(obs.decode, self.table.groups[group].decode_sms)
            ratio = state.guard.ratio(group, work.shape, obs.decode)
            worst_s = decode_s * ratio
            shrinks = obs.group in self.table.split_indices and group < obs.group
            if worst_s <= target_s * (SHRINK_MARGIN if shrinks else 1.0):
                reason = Reason.BEST_FIT
                break
            rejected.append(
                Alternative(label=f"decode_sms={self.table.groups[group].decode_sms}", predicted_s=worst_s)
            )
        prefill_s = latency.prefill_s(work.shape, self.table.groups[group].prefill_sms)
        count = layers_for(worst_s, prefill_s, self.context.layers) - work.layers_in_flight
        numbers = DecisionNumbers(
            predicted_decode_s=decode_s,
            predicted_prefill_s=prefill_s,
            guard_ratio=ratio,
            tbt_target_s=obs.tbt_target_s,
            tbt_slack_s=target_s - worst_s if obs.tbt_target_s is not None else None,
        )
        return Plan(
            group=group, layers=max(0, count), reason=reason, numbers=numbers, rejected=tuple(rejected)
        )

    def _preempting_work(self, obs: Observation) -> Work | None:
        """A waiting batch that may overtake the running prefill at the next layer boundary, or None.

        It must be shorter than what is left of the running one, and the running one must still meet its
        own deadline afterwards; nothing is preempted twice and nothing preempts a preemptor
        (MuxWise 3.4.2, DRIFT algorithm 1 lines 6-20; invariants 3 and 4).
        """
        running = obs.prefill
        if running is None or obs.preempted is not None or running.was_preempted:
            return None
        batch = form_prefill_batch(obs)[:1]
        if not batch:
            return None
        shape = shape_of(batch)
        sms = self._prefill_sms(obs)
        new_s = self.context.latency.prefill_s(shape, sms)
        left_s = self._left_s(running, sms)
        if new_s >= left_s or obs.now_s + new_s + left_s > running.earliest_deadline_s:
            return None
        return Work(
            shape=shape,
            layers_left=self.context.layers,
            layers_in_flight=0,
            admit=(batch[0].request_id,),
            preempt=True,
        )

    def _prefill_sms(self, obs: Observation) -> int:
        sms = self.table.groups[obs.group].prefill_sms
        return sms or self.table.groups[self.table.split_indices[0]].prefill_sms

    def _left_s(self, running: PrefillView, sms: int) -> float:
        layers = self.context.layers
        whole_s = self.context.latency.prefill_s(running.shape, sms)
        return whole_s * (layers - running.layers_done) / layers
