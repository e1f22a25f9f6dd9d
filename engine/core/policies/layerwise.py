"""Splits: layers of one prefill batch on some SMs, decode steps on the others.

What a split is predicted to take, and which one fits best (MuxWise, DRIFT, and `auto` where it splits); and
what all split policies share: which prefill a decision is about, and the rule for switching groups. Source:
MuxWise sections 3.2 to 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.guard import ContentionGuard, guard_cell
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.queueing import UNORDERED, OrderedQueue, form_prefill_batch, shape_of
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    DecisionNumbers,
    EngineLimits,
    Feedback,
    Mode,
    Observation,
    PrefillShape,
    PrefillView,
    Reason,
    WaitingRequest,
)

SHRINK_MARGIN = 0.95
"""Decode gives SMs back only when the smaller group meets this share of the target, so that a batch at
the boundary does not switch at every step."""

ALONE_SLICE_S = 0.2
"""Work launched at a time when nothing decodes: long enough to keep the device fed, short enough for an
abort, a preemption or a new setting to be seen soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The prefill that a decision is about: the one in progress, or one to admit."""

    shape: PrefillShape
    layers_left: int
    layers_in_flight: int
    layers: int
    """In all. This and the other two count slices where the layers are cut."""
    slices: int = 1
    admit: tuple[str, ...] = ()
    resume: bool = False
    preempt: bool = False

    @property
    def is_new(self) -> bool:
        """Whether this decision starts it on the device."""
        return bool(self.admit) or self.resume


def next_work(obs: Observation, layers: int) -> Work | None:
    """The prefill in progress; else the set-aside one; else a new batch; else None."""
    if obs.prefill is not None:
        running = obs.prefill
        return Work(
            shape=running.shape,
            layers_left=layers * running.slices - running.layers_launched,
            layers_in_flight=running.layers_in_flight,
            layers=layers * running.slices,
            slices=running.slices,
        )
    if obs.preempted is not None:
        return Work(
            shape=obs.preempted.shape,
            layers_left=layers * obs.preempted.slices - obs.preempted.layers_launched,
            layers_in_flight=0,
            layers=layers * obs.preempted.slices,
            slices=obs.preempted.slices,
            resume=True,
        )
    batch = form_prefill_batch(obs)
    return new_work(batch, layers) if batch else None


def new_work(
    batch: tuple[WaitingRequest, ...], layers: int, *, slices: int = 1, preempt: bool = False
) -> Work:
    """A batch that is to start, or to overtake the running one."""
    return Work(
        shape=shape_of(batch),
        layers_left=layers * slices,
        layers_in_flight=0,
        layers=layers * slices,
        slices=slices,
        admit=tuple([r.request_id for r in batch]),
        preempt=preempt,
    )


SLICE_S = 0.025
"""What a slice of a layer takes at most: two may be in flight when urgent work comes, and it is to wait for
50 ms at most."""


def slices_of(prompt: WaitingRequest, limits: EngineLimits, context: PolicyContext, sms: int) -> int:
    """The number of slices of its tokens into which each layer of a prompt is cut; 1 if it is short."""
    new, reused, slices = prompt.new_tokens, prompt.reused_tokens, 1
    least, latency, most_s = limits.least_slice_tokens, context.latency, SLICE_S * context.layers
    while least is not None and new >= 2 * least * slices:
        own = -(-new // slices)
        last = PrefillShape.of([(own, reused + new - own)])
        if latency.colocated_ratio(sms) * latency.prefill_s(last, sms) <= most_s:
            break
        slices *= 2
    return slices


def drain_to_preempt(obs: Observation) -> Decision:
    """Decode goes on and no layer is launched, so that the next safe point is a layer boundary."""
    return Decision(
        mode=Mode.SPLIT,
        partition_id=obs.partition_id,
        decode_steps=1 if obs.decode.bs else 0,
        reason=Reason.PREEMPT_WHEN_DRAINED,
    )


def without_prefill(obs: Observation, table: PartitionTable) -> Decision:
    """Nothing to prefill: decode has all SMs, on the stream that it has in a split, too."""
    if not obs.decode.bs:
        return Decision(mode=Mode.IDLE, partition_id=obs.partition_id, reason=Reason.NOTHING_TO_DO)
    return Decision(
        mode=Mode.SPLIT, partition_id=table.decode_only, decode_steps=1, reason=Reason.DECODE_ALONE
    )


def split_decision(
    obs: Observation,
    work: Work,
    plan: Plan,
    rejected: tuple[Alternative, ...] | None = None,
    queue: OrderedQueue = UNORDERED,
) -> Decision:
    """Carry a plan out as far as the observation allows. `rejected`: the alternatives to show, if not the
    plan's own. `queue`: where the work was taken from, if it is new.

    A group changes only when no prefill layer is in flight (invariant 2). Until then decode goes on in the
    group in force and no layer is launched, so the prefill stream is empty within a step.
    """
    if plan.partition_id != obs.partition_id and work.layers_in_flight:
        return Decision(
            mode=Mode.SPLIT,
            partition_id=obs.partition_id,
            decode_steps=1 if obs.decode.bs else 0,
            reason=Reason.SWITCH_WHEN_DRAINED,
            numbers=plan.numbers,
        )
    layers = min(plan.prefill_layers, work.layers_left)
    reason = plan.reason
    if not plan.decode_steps and not layers:
        reason = Reason.WAIT_FOR_PREFILL
    elif work.preempt:
        reason = Reason.PREEMPTED_FOR_SHORTER
    elif work.resume:
        reason = Reason.RESUMED
    return Decision(
        mode=Mode.SPLIT,
        partition_id=plan.partition_id,
        reason=reason,
        decode_steps=plan.decode_steps,
        prefill_layers=layers,
        slices=work.slices if work.admit else 1,
        admit=work.admit,
        preempt=work.preempt,
        resume=work.resume,
        deprioritize=queue.unreachable,
        refuse=queue.refused,
        order=queue.by,
        numbers=plan.numbers,
        rejected=plan.rejected if rejected is None else rejected,
    )


def layers_for(duration_s: float, prefill_s: float, layers: int) -> int:
    """Layers whose prefill covers `duration_s`: N_PL = ceil(T_d * N_T / T_p), at least one.

    T_d is the worst case: a step slowed by contention must not outlast the layers beside it.

    Source: MuxWise section 3.4.2.
    """
    if prefill_s <= 0.0:
        return layers
    return max(1, math.ceil(duration_s * layers / prefill_s))


def prefill_alone(
    context: PolicyContext, table: PartitionTable, work: Work, *, layerwise: bool = True
) -> Plan:
    """A slice of the prefill on all SMs, or the whole of it."""
    prefill_s, layers = context.latency.prefill_s(work.shape, table.rules.total_sms), work.layers
    count = layers_for(ALONE_SLICE_S, prefill_s, layers) - work.layers_in_flight
    return Plan(
        kind=PlanKind.SPLIT,
        partition_id=table.PREFILL_ONLY,
        reason=Reason.PREFILL_ALONE,
        finish_s=prefill_s * ((work.layers_left + work.layers_in_flight) / layers),
        prefill_layers=max(0, count) if layerwise else layers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlans:
    """The splits of a table, and the prediction for each."""

    context: PolicyContext
    table: PartitionTable
    uses_guard: bool = True
    """Multiply predicted decode by the contention guard (MuxWise 3.3.2)."""
    layerwise: bool = True
    """Launch only the layers that a decode step covers; off, the whole phase at once (MuxWise figure 9)."""
    max_steps: int = 1
    """Decode steps launched at once, at most: the host's part is paid once for all of them."""

    def best_fit(
        self,
        obs: Observation,
        work: Work,
        guard: ContentionGuard,
        among: Sequence[int] | None = None,
        stall_s: float = 0.0,
        slot_use: SlotUse | None = None,
        steady_s: float = math.inf,
    ) -> Plan:
        """The first split whose worst-case decode meets the target, so the one with the fewest decode SMs. If
        none does, the widest; if nothing decodes, all SMs. `among`: of these groups only. `slot_use`, while
        others wait: decode gets more than it needs as long as it is what the next batch waits for.
        `steady_s`: how long a step may take where the target is looser."""
        if not obs.decode.bs:
            return prefill_alone(self.context, self.table, work, layerwise=self.layerwise)
        table, latency, layers = self.table, self.context.latency, work.layers
        target_s = self.context.planned_tbt_s(obs.tbt_target_s) - stall_s
        held = obs.partition_id if obs.partition_id in table.split_indices else 0
        rejected: list[Alternative] = []
        group, decode_s, ratio, worst_s, meets = table.PREFILL_ONLY, 0.0, 1.0, 0.0, False
        for group in table.split_indices if among is None else among:
            decode_sms = table.groups[group].decode_sms
            decode_s = latency.decode_s(obs.decode, decode_sms)
            ratio = guard.ratio(decode_sms, work.shape, obs.decode) if self.uses_guard else 1.0
            worst_s = decode_s * ratio
            most_s = target_s * SHRINK_MARGIN if group < held else target_s
            meets = worst_s <= most_s
            if worst_s <= min(most_s, steady_s):
                break
            rejected.append(Alternative(label=f"decode_sms={decode_sms}", predicted_s=worst_s))
        split_ratio = None
        if meets and slot_use is not None and among is None:
            wider = self._widened(obs, work, group, slot_use)
            if wider != group:
                split_ratio = slot_use.split_step_ratio
                group, decode_sms = wider, table.groups[wider].decode_sms
                decode_s = latency.decode_s(obs.decode, decode_sms)
                ratio = guard.ratio(decode_sms, work.shape, obs.decode) if self.uses_guard else 1.0
                worst_s = decode_s * ratio
        # The plan: as many decode steps as the prefill lasts, and the layers that cover them.
        prefill_sms, in_flight = table.groups[group].prefill_sms, work.layers_in_flight
        prefill_s, layers_left = latency.prefill_s(work.shape, prefill_sms), work.layers_left + in_flight
        steps = 1
        if self.max_steps > 1 and prefill_s and worst_s:
            steps = max(1, min(self.max_steps, int(prefill_s * layers_left / layers / worst_s)))
        count = max(0, layers_for(worst_s * steps, prefill_s, layers) - in_flight)
        return Plan(
            kind=PlanKind.SPLIT,
            partition_id=group,
            reason=Reason.BEST_FIT if meets else Reason.TBT_INFEASIBLE,
            meets=meets,
            worst_gap_s=worst_s,
            most_s=steady_s,
            finish_s=prefill_s * latency.colocated_ratio(prefill_sms) * (layers_left / layers),
            decode_steps=steps,
            prefill_layers=count if self.layerwise else layers,
            numbers=DecisionNumbers(
                predicted_decode_s=decode_s,
                predicted_prefill_s=prefill_s,
                guard_ratio=ratio,
                tbt_target_s=obs.tbt_target_s,
                delivery_s=self.context.left_for_delivery_s(obs.tbt_target_s),
                tbt_slack_s=None if obs.tbt_target_s is None else obs.tbt_target_s - worst_s,
                stall_room_s=stall_s or None,
                split_ratio=split_ratio,
            ),
            rejected=tuple(rejected),
        )

    def _widened(self, obs: Observation, work: Work, group: int, slot_use: SlotUse) -> int:
        """The split from which the next batch can begin soonest: `group`, which meets the target, or one with
        more decode SMs, if decode steps or slots take longer than the prefill does."""
        requests, held = work.shape.bs, obs.partition_id
        decode = slot_use.all_decoding(obs.decode)

        def next_s(group: int) -> tuple[float, bool]:
            split, latency = self.table.groups[group], self.context.latency
            ratio = latency.colocated_ratio(split.prefill_sms)
            prefill_s = latency.prefill_s(work.shape, split.prefill_sms) * ratio
            step_s = latency.decode_s(decode, split.decode_sms) * slot_use.split_step_ratio
            decode_s = slot_use.occupied_s(requests, step_s, prefill_s)
            wait_s = max(prefill_s, decode_s)
            return wait_s * SHRINK_MARGIN if group == held else wait_s, decode_s > prefill_s

        best_s, is_short = next_s(group)
        for wider in range(group + 1, len(self.table.split_indices) + self.table.split_indices[0]):
            if not is_short:
                break
            wider_s, is_short = next_s(wider)
            if wider_s < best_s:
                best_s, group = wider_s, wider
        return group

    def every(self, obs: Observation, work: Work, guard: ContentionGuard) -> tuple[Plan, ...]:
        """All splits by growing decode SMs, whichever fits best."""
        if not obs.decode.bs:
            return (self.best_fit(obs, work, guard),)
        return tuple(self.best_fit(obs, work, guard, (group,)) for group in self.table.split_indices)

    def left_s(self, running: PrefillView, sms: int) -> float:
        """Predicted seconds that a running layer-wise prefill still needs."""
        layers = self.context.layers * running.slices
        whole_s = self.context.latency.prefill_s(running.shape, sms)
        return whole_s * (layers - running.layers_done) / layers

    def learned(self, feedback: Feedback, guard: ContentionGuard) -> ContentionGuard:
        """A decode step slower than its bound raises the guard's cell at once (MuxWise 3.3.2); else the guard
        stays the same object."""
        if not self.uses_guard or feedback.mode is not Mode.SPLIT or feedback.predicted_s <= 0.0:
            return guard
        decode_sms = self.table.groups[feedback.partition_id].decode_sms
        cell = guard_cell(decode_sms, feedback.prefill, feedback.decode)
        return guard.learned(cell, feedback.measured_s / feedback.predicted_s)

    def adopted(self, guard: ContentionGuard, before: PolicyContext, *, is_refined: bool) -> ContentionGuard:
        """The guard of this context, with what was raised here if it is of the same profile."""
        return guard.updated(before.guard, self.context.guard) if is_refined else self.context.guard
