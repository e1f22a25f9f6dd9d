"""`auto`: fused or split, whichever is predicted to prefill sooner within the TBT target.

A fused batch reads the weights once and needs no second stream, which wins on short prompts; a split reads
a long prompt's KV once instead of once per chunk, gives decode just what it needs, and can be preempted
at any layer, which wins on long ones. A decision, from left to right:

    Observation ─▶ order ──────▶ batch ───────▶ plans ────────────▶ choose ─────▶ explain ────▶ Decision
                   least slack   who goes       fused: b prompt     whichever     mode, group,
                   first, who    together in    tokens a step       finishes, or  numbers, and
                   is too late   time           split: group g,     lets others   what was not
                   last                         k decode steps      in, sooner    chosen
                                                whole: as a graph
                   queueing.py   queueing.py,   fusedsteps.py,      choice.py     fusedsteps.py,
                                 here           layerwise.py                      layerwise.py

A prefill that is under way leaves less to decide: in chunks, it goes on in fused steps; by layers, in the
split that fits best now; waiting requests may overtake it (overtaking.py). Nothing to prefill: decode alone.
Predictions that proved wrong: a fixed step, in order of arrival.

Sources: DuetServe section 4 (aggregate unless at risk), MuxWise section 3.4 (best fit, preemption), and
`queueing.py` for the order. What is remembered is in autostate.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.autobatch import AutoOptions, Batch, How, is_by_layers
from pdmuxd.engine.core.policies.autostate import AutoState, adopted
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.choice import fused_or_split
from pdmuxd.engine.core.policies.fusedsteps import (
    LARGE_CHUNK_TOKENS,
    FusedSteps,
    StepBounds,
    decode_alone,
    fused_decision,
)
from pdmuxd.engine.core.policies.layerwise import (
    SplitPlans,
    Work,
    drain_to_preempt,
    new_work,
    next_work,
    slices_of,
    split_decision,
    without_prefill,
)
from pdmuxd.engine.core.policies.overtaking import (
    before_the_chunk,
    is_due_before,
    urgent_beside_chunks,
    urgent_beside_layers,
)
from pdmuxd.engine.core.policies.slots import within_target
from pdmuxd.engine.core.policies.stalls import stall_room_s
from pdmuxd.engine.core.policies.tbt_classes import without_those_who_can_wait
from pdmuxd.engine.core.queueing import (
    UNORDERED,
    OrderedQueue,
    begun_within,
    fitting_within,
    form_prefill_batch,
    form_timely_batch,
    order_by_slack,
    tenants_short_of_slots,
)
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    Feedback,
    Observation,
    PrefillFeedback,
    PrefillShape,
    PrefillView,
    Reason,
    WaitingRequest,
)

BATCH_TOKENS = LARGE_CHUNK_TOKENS
"""Prompts join a batch up to this: compute is saturated by then, and the first waits for the last."""

MAX_LOOK_AHEAD = 4
"""Decode steps whose layers are planned at once in a split; the loop launches an equal share with each. What
is still in flight then counts by that share alone, so that the prefill stream does not run dry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoPolicy:
    """The default policy."""

    name: str
    context: PolicyContext
    table: PartitionTable
    options: AutoOptions
    split: SplitPlans
    fused: FusedSteps

    @classmethod
    def build(cls, name: str, context: PolicyContext, options: AutoOptions) -> AutoPolicy:
        """The splits of muxwise."""
        table = context.table()
        steps = MAX_LOOK_AHEAD if options.look_ahead else 1
        split = SplitPlans(context=context, table=table, uses_guard=options.guard, max_steps=steps)
        fused = FusedSteps(context=context, table=table)
        return cls(name=name, context=context, table=table, options=options, split=split, fused=fused)

    def decide(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        """Go on with the prefill under way, or choose the next one and how to run it."""
        beside: PrefillShape | None = None
        obs = self._within_target(obs, state)
        while True:
            part, sits_out = self._who_decodes(obs, state, beside)
            queue = self._order(part, state)
            batch = self._batch(part, state, queue)
            plans = self._plans(part, state, batch)
            plan, rejected = self._choose(part, state, batch, plans)
            decision, after = self._explain(part, state, queue, batch, plan, rejected)
            is_too_much = decision.reason is Reason.TBT_INFEASIBLE and decision.admit
            if beside or batch.work is None or not is_too_much or not self._has_classes(obs, state):
                return (replace(decision, sits_out=sits_out) if sits_out else decision), after
            beside = batch.work.shape  # no split has time for so many beside it: more of them can wait

    def plans(self, obs: Observation, state: AutoState) -> tuple[Plan, ...]:
        """Plans for the prefill that goes on or is next: every split, and the fused steps that meet the
        target. The stages of `decide` up to the choice; nobody overtakes, or waits for a slot in time."""
        queue = self._order(obs, state)
        return self._plans(obs, state, self._batch(obs, state, queue, may_overtake=False), every=True)

    # --- who decodes, order, batch

    def _who_decodes(
        self, obs: Observation, state: AutoState, beside: PrefillShape | None
    ) -> tuple[Observation, tuple[str, ...]]:
        """The observation without those whose next tokens can wait, and their ids."""
        if not self._has_classes(obs, state):
            return obs, ()
        ratio = state.estimates.fused.margin.ratio * state.estimates.fused.ratio
        return without_those_who_can_wait(
            obs, self.context, self.table, state.estimates.guard, beside=beside, margin_ratio=ratio
        )

    def _within_target(self, obs: Observation, state: AutoState) -> Observation:
        learned = state.estimates
        return obs if learned.breaker.is_open else within_target(obs, self.context, self.table, learned.guard)

    def _has_classes(self, obs: Observation, state: AutoState) -> bool:
        return self.options.classes and bool(obs.decoding) and not state.estimates.breaker.is_open

    def _order(self, obs: Observation, state: AutoState) -> OrderedQueue:
        """Least slack first, or as they came in fixed steps; `UNORDERED` itself where who is first decides
        nothing."""
        if not self._needs_order(obs, state):
            return UNORDERED
        if not state.estimates.breaker.is_open or is_by_layers(obs):
            return self._by_slack(obs, state)
        # Steps take longer than predicted, or predictions would be in use: who is late even by them is late
        # for sure, and is refused where its tenant wants that.
        refused = self._by_slack(obs, state).refused
        left = tuple([request for request in obs.waiting if request.request_id not in refused])
        return replace(UNORDERED, order=left, refused=refused)

    def _by_slack(self, obs: Observation, state: AutoState) -> OrderedQueue:
        if not self.options.by_slack:
            return OrderedQueue(order=tuple(obs.waiting), unreachable=(), state=state.queue)
        sms = self.table.prefill_sms(obs.partition_id)
        return order_by_slack(
            obs.waiting,
            now_s=obs.now_s,
            latency=self.context.latency,
            sms=sms,
            slowdown_ratio=self.context.latency.colocated_ratio(sms) * state.estimates.prefill_ratio,
            state=state.queue,
            short_of_slots=tenants_short_of_slots(obs),
            only_aged=obs.are_slots_short,
        )

    def _needs_order(self, obs: Observation, state: AutoState) -> bool:
        """Whether who is first decides anything: not where all can wait for the rest of the prefill that runs
        by layers."""
        if not is_by_layers(obs):
            return bool(obs.waiting) or obs.prefill is not None
        most = obs.limits.max_set_aside if self.options.nesting else 1
        if not self.options.preemption or not obs.waiting:
            return False
        if obs.prefill is not None and len(obs.set_aside) >= most:
            return False
        left_s = self._left_s(obs, state, obs.under_way[:1])[0]
        return is_due_before(obs.waiting, obs.now_s + left_s + left_s)

    def _batch(
        self, obs: Observation, state: AutoState, queue: OrderedQueue, *, may_overtake: bool = True
    ) -> Batch:
        """The requests that are prefilled next, or overtake or join what is under way."""
        if is_by_layers(obs):
            return self._beside_layers(obs, state, queue if may_overtake else UNORDERED)
        if state.estimates.breaker.is_open:
            return Batch(form_prefill_batch(obs, queue=queue.order), How.FIXED)
        if obs.prefill is not None:
            requests = form_prefill_batch(obs, queue=queue.order, max_tokens=BATCH_TOKENS)
            requests = () if requests and requests[0].is_whole else requests
            step = self.fused.next_step(obs, requests, self._bounds(obs, state, requests))
            batch = Batch(requests, How.ALONG, step=step)
            return self._beside_chunk(obs, state, queue, batch) if may_overtake else batch
        requests = self._timely(obs, queue.order, frozenset(queue.unreachable))
        return Batch(requests, How.NEXT, self._new_work(obs, requests) if requests else None)

    def _timely(
        self, obs: Observation, order: tuple[WaitingRequest, ...], unreachable: Collection[str]
    ) -> tuple[WaitingRequest, ...]:
        if not self.options.by_slack:
            return form_prefill_batch(obs, queue=order, max_tokens=BATCH_TOKENS)
        latency, sms = self.context.latency, self.table.prefill_sms(obs.partition_id)
        return form_timely_batch(obs, order, unreachable, latency, sms=sms, max_tokens=BATCH_TOKENS)

    def _beside_layers(self, obs: Observation, state: AutoState, queue: OrderedQueue) -> Batch:
        """Requests that would miss their targets behind the prefill that runs, or that would go on now: they
        overtake it together."""
        on = Batch((), How.GO_ON, next_work(obs, self.context.layers))
        if queue is UNORDERED:
            return on
        sms, lefts_s = self.table.prefill_sms(obs.partition_id), self._left_s(obs, state, obs.under_way)
        urgent = urgent_beside_layers(
            obs, queue, self.context.latency, sms=sms, left_s=lefts_s, max_tokens=BATCH_TOKENS
        )
        requests = form_prefill_batch(obs, queue=urgent, max_tokens=BATCH_TOKENS) if urgent else ()
        if not requests:
            return on
        work = self._new_work(obs, requests, preempt=obs.prefill is not None)
        return Batch(requests, How.DRAIN if obs.under_way[0].layers_in_flight else How.OVERTAKE, work)

    def _new_work(
        self, obs: Observation, requests: tuple[WaitingRequest, ...], *, preempt: bool = False
    ) -> Work:
        slices = 1
        if len(requests) == 1:
            sms = self.table.prefill_sms(obs.partition_id)
            slices = slices_of(requests[0], obs.limits, self.context, sms)
        return new_work(requests, self.context.layers, slices=slices, preempt=preempt)

    def _left_s(self, obs: Observation, state: AutoState, units: Sequence[PrefillView]) -> list[float]:
        """Seconds that each of these prefills by layers still needs."""
        sms = self.table.prefill_sms(obs.partition_id)
        ratio = self.context.latency.colocated_ratio(sms) * state.estimates.prefill_ratio
        return [ratio * self.split.left_s(unit, sms) for unit in units]

    def _beside_chunk(self, obs: Observation, state: AutoState, queue: OrderedQueue, batch: Batch) -> Batch:
        """A batch that began fused stays so. Those with less slack go first in the same step, or, if they
        would be late, in one that the prompt in chunks sits out; else `batch` has what the step leaves."""
        running, plan = obs.prefill, batch.step
        if running is None or plan is None:
            return batch
        if self.options.preemption and self.options.by_slack:
            latency, total_sms = self.context.latency, self.table.rules.total_sms
            first = before_the_chunk(obs, queue, batch.requests, plan, latency, total_sms)
            if first:
                return Batch(first, How.FIRST, step=self.fused.holding(obs, plan, first, chunk_last=True))
        if self.options.preemption:
            urgent = urgent_beside_chunks(obs, queue, plan, has_chunk_waited=state.has_chunk_waited)
            requests = form_prefill_batch(obs, queue=urgent)
            if requests:
                alone, tokens = replace(obs, prefill=None), sum(r.new_tokens for r in requests)
                own = self.fused.plan(alone, tokens, self.fused.step_s(alone, tokens, requests))
                return Batch(requests, How.INSTEAD, step=own)
        left = plan.prompt_tokens - (running.shape.new_tokens - running.done_tokens)
        may_begin = partial(self._would_be_fused, obs, state, queue.unreachable, plan)
        fitting = fitting_within(batch.requests, left, queue.unreachable, may_begin)
        if len(fitting) < len(batch.requests):
            plan = self.fused.holding(obs, plan, fitting)
        return Batch(fitting, How.ALONG, step=plan)

    def _would_be_fused(
        self,
        obs: Observation,
        state: AutoState,
        unreachable: Collection[str],
        plan: Plan,
        rest: tuple[WaitingRequest, ...],
    ) -> bool:
        """Whether the batch that these begin would go in steps like this plan's, were it begun now."""
        requests = self._timely(obs, rest, unreachable)
        work = self._new_work(obs, requests)
        if not self._may_split(obs, work):
            return True
        if not self.options.fuse or not obs.decode.bs or not plan.meets:
            return False
        total_s = self.fused.total_s(obs, state.estimates.fused.sizes, work.shape, plan.prompt_tokens)
        batch, as_batch = Batch(requests, How.NEXT, work), plan._replace(finish_s=total_s)
        chosen, _ = self._choose(obs, state, batch, (self._best_split(obs, state, batch, work), as_batch))
        return chosen is not None and chosen.kind is plan.kind

    # --- plans, choose, explain

    def _plans(
        self, obs: Observation, state: AutoState, batch: Batch, *, every: bool = False
    ) -> tuple[Plan, ...]:
        """The splits, of which the best fit is enough to choose, and the fused steps that meet the target."""
        requests, work = batch.requests, batch.work
        if batch.step is not None:
            return (batch.step,)
        if batch.how is How.FIXED and (obs.prefill is not None or requests):
            return (self.fused.fixed_step(obs, requests),)
        if work is None or batch.how is How.DRAIN:
            return ()
        is_next = batch.how is How.NEXT
        if is_next and not self._may_split(obs, work):
            return (self.fused.next_step(obs, requests, self._bounds(obs, state, requests)),)
        if every:
            splits = self.split.every(obs, work, state.estimates.guard)
        else:
            splits = (self._best_split(obs, state, batch, work),)
        if not is_next or not self.options.fuse or requests[0].is_whole:
            return splits
        fused = self.fused.whole_batch(obs, requests, work.shape, self._bounds(obs, state, requests))
        return splits if fused is None else (*splits, fused)

    def _may_split(self, obs: Observation, work: Work) -> bool:
        return self.options.split and obs.limits.holds(work.shape.new_tokens)

    def _best_split(self, obs: Observation, state: AutoState, batch: Batch, work: Work) -> Plan:
        return self.split.best_fit(
            obs,
            work,
            state.estimates.guard,
            stall_s=self._stall_room_s(obs, state, batch.requests if batch.how is How.NEXT else obs.waiting),
            slot_use=state.slot_use(obs, batch.requests or obs.under_way[0].requests),
            steady_s=self.fused.steady_step_s(obs, work.shape) if obs.decode.bs else math.inf,
        )

    def _bounds(self, obs: Observation, state: AutoState, requests: tuple[WaitingRequest, ...]) -> StepBounds:
        """What bounds a fused step of these."""
        stall_s, slot_use = self._stall_room_s(obs, state, requests), state.slot_use(obs, requests)
        return StepBounds(state.estimates.fused, stall_s, slot_use)

    def _stall_room_s(self, obs: Observation, state: AutoState, queue: Sequence[WaitingRequest]) -> float:
        stall_s, latency = state.estimates.fused.margin.expected_stall_s, self.context.latency
        return stall_room_s(obs, queue, stall_s, latency, self.table.rules.total_sms)

    def _choose(
        self, obs: Observation, state: AutoState, batch: Batch, plans: tuple[Plan, ...]
    ) -> tuple[Plan | None, tuple[Alternative, ...]]:
        """The plan that is carried out, and what it was preferred to."""
        if len(plans) < 2:
            return (plans[0], plans[0].rejected) if plans else (None, ())
        return fused_or_split(
            obs,
            batch.requests,
            *plans,
            context=self.context,
            table=self.table,
            prefill_ratio=state.estimates.prefill_ratio,
            slot_use=state.slot_use(obs, batch.requests),
        )

    def _explain(
        self,
        obs: Observation,
        state: AutoState,
        queue: OrderedQueue,
        batch: Batch,
        plan: Plan | None,
        rejected: tuple[Alternative, ...],
    ) -> tuple[Decision, AutoState]:
        """The decision, with its reason and numbers, and what is remembered of it."""
        how, requests, work = batch.how, batch.requests, batch.work
        if how is How.DRAIN:
            return drain_to_preempt(obs), state
        if plan is None:
            if how is How.GO_ON:
                return without_prefill(obs, self.table), state
            alone, late = decode_alone(obs, self.table), queue.unreachable
            alone = replace(alone, deprioritize=late, refuse=queue.refused, order=queue.by)
            is_kept = how is How.NEXT and queue is not UNORDERED
            return alone, (replace(state, queue=queue.state) if is_kept else state)
        if plan.kind is PlanKind.SPLIT and work is not None:
            decision = split_decision(obs, work, plan, rejected, queue if how is How.NEXT else UNORDERED)
            if how is How.GO_ON:
                return decision, state
            return replace(decision, order=queue.by), state.begun(queue, requests, obs.now_s)
        decision = fused_decision(obs, plan, requests, rejected, queue)
        if how is How.FIXED:
            return decision, state
        if how is How.NEXT:
            return decision, state.begun(queue, begun_within(requests, plan.prompt_tokens), obs.now_s)
        after = replace(state.begun(queue, requests, obs.now_s), has_chunk_waited=how is How.INSTEAD)
        if how is How.INSTEAD:
            decision = replace(decision, preempt=True, reason=Reason.PREEMPTED_FOR_SHORTER)
        return (replace(decision, chunk_last=True) if how is How.FIRST else decision), after

    # --- what is learned

    def initial_state(self) -> AutoState:
        """The estimates that the context begins with, no credit."""
        guard, learned = self.context.guard, self.context.learned
        return AutoState(
            estimates=StepEstimates(guard=guard) if learned is None else replace(learned, guard=guard)
        )

    def learn(self, feedback: Feedback, state: AutoState) -> AutoState:
        """Learn from a step."""
        decode_sms, uses_guard = self.table.groups[feedback.partition_id].decode_sms, self.options.guard
        return replace(state, estimates=state.estimates.after(feedback, decode_sms, uses_guard=uses_guard))

    def learn_prefill(self, feedback: PrefillFeedback, state: AutoState) -> AutoState:
        """Learn from a prefill that ended."""
        colocated_ratio = self.context.latency.colocated_ratio(feedback.sms)
        return replace(state, estimates=state.estimates.after_prefill(feedback, colocated_ratio))

    def adopt(self, state: AutoState, before: PolicyContext, *, is_refined: bool) -> AutoState:
        """What still holds with this policy's context in place of `before`."""
        return adopted(state, self.split, before, is_refined=is_refined)
