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

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pdmuxd.engine.core.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.latency_margin import LatencyMargin
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.autostate import AutoState, adopted, after_prefill, after_step
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.choice import fused_or_split
from pdmuxd.engine.core.policies.fusedsteps import (
    LARGE_CHUNK_TOKENS,
    FusedSteps,
    decode_alone,
    fused_decision,
)
from pdmuxd.engine.core.policies.layerwise import (
    SplitPlans,
    Work,
    drain_to_preempt,
    new_work,
    next_work,
    split_decision,
    without_prefill,
)
from pdmuxd.engine.core.policies.overtaking import (
    before_the_chunk,
    is_due_before,
    urgent_beside_chunks,
    urgent_beside_layers,
)
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.policies.stalls import stall_room_s
from pdmuxd.engine.core.policies.tbt_classes import without_those_who_can_wait
from pdmuxd.engine.core.queueing import (
    OrderedQueue,
    begun_within,
    fitting_within,
    form_prefill_batch,
    form_timely_batch,
    order_by_slack,
    shape_of,
    tenants_short_of_slots,
)
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    Feedback,
    Observation,
    PrefillFeedback,
    PrefillMode,
    PrefillShape,
    Reason,
    WaitingRequest,
)

BATCH_TOKENS = LARGE_CHUNK_TOKENS
"""Prompts join a batch up to this: compute is saturated by then, and the first waits for the last."""

MAX_LOOK_AHEAD = 4
"""Decode steps whose layers are planned at once in a split; the loop launches an equal share with each. What
is still in flight then counts by that share alone, so that the prefill stream does not run dry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions:
    """Mechanisms that can be ablated."""

    preemption: bool = True
    nesting: bool = True
    """Off: what has overtaken a prefill is not overtaken itself."""
    guard: bool = True
    look_ahead: bool = True
    split: bool = True
    """Off: fused steps alone, within the target."""
    fuse: bool = True
    """Off: layers alone, where the memory for a whole batch suffices."""
    classes: bool = True
    """Off: everybody decodes in every step, whatever its TBT target."""
    by_slack: bool = True


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
        if not self.options.classes or not obs.decoding or state.breaker.is_open:
            return self._decide(obs, state)
        part, sits_out = self._divided(obs, state)
        decision, after = self._decide(part, state)
        if decision.reason is Reason.TBT_INFEASIBLE and decision.admit:
            # No split has time for so many beside these prompts: more of them can wait.
            beside = shape_of(tuple([r for r in obs.waiting if r.request_id in decision.admit]))
            part, sits_out = self._divided(obs, state, beside)
            decision, after = self._decide(part, state)
        return (replace(decision, sits_out=sits_out) if sits_out else decision), after

    def _divided(
        self, obs: Observation, state: AutoState, beside: PrefillShape | None = None
    ) -> tuple[Observation, tuple[str, ...]]:
        ratio = state.latency_margin.ratio * state.fused_correction
        return without_those_who_can_wait(
            obs, self.context, self.table, state.guard, beside=beside, margin_ratio=ratio
        )

    def _decide(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        running = obs.prefill
        if state.breaker.is_open and not _is_by_layers(obs):
            return self._fixed(obs, state), state
        if running is None and obs.preempted is None:
            return self._next_prefill(obs, state)
        if running is not None and running.mode is PrefillMode.CHUNKED:
            return self._next_chunk(obs, state)
        return self._overtake(obs, state) or (self._by_layers(obs, state), state)

    # --- a new prefill: order, batch, plans, choose, explain

    def _next_prefill(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        if not obs.waiting:
            return decode_alone(obs, self.table), state
        queue = self._order(obs, state)
        unreachable = frozenset(queue.unreachable)  # asked of every member; the order is the queue's
        batch = self._batch(obs, queue.order, unreachable)
        if not batch:
            alone, late = decode_alone(obs, self.table), queue.unreachable
            alone = replace(alone, deprioritize=late, refuse=queue.refused, order=queue.by)
            return alone, replace(state, queue=queue.state)
        work = new_work(batch, self.context.layers)
        if self.options.split and obs.limits.holds(work.shape.new_tokens):
            learned = self._learned(obs, state, batch)
            fused = self.fused.whole_batch(obs, batch, work.shape, *learned) if self.options.fuse else None
            plan, rejected = self._chosen(obs, state, batch, work, fused)
        else:
            plan, rejected = self._next_step(obs, state, batch), ()
        if plan.kind is PlanKind.SPLIT:
            decision, begun = split_decision(obs, work, plan, rejected, queue), batch
        else:
            decision = fused_decision(obs, plan, batch, rejected, queue)
            begun = begun_within(batch, plan.prompt_tokens)
        return decision, state.begun(queue, begun, obs.now_s)

    def _next_step(self, obs: Observation, state: AutoState, batch: tuple[WaitingRequest, ...]) -> Plan:
        """A fused step of what cannot run in any other way."""
        return self.fused.next_step(obs, batch, *self._learned(obs, state, batch))

    def _learned(
        self, obs: Observation, state: AutoState, batch: tuple[WaitingRequest, ...]
    ) -> tuple[LatencyMargin, BatchSizeCorrection, float, SlotUse | None]:
        """What bounds a fused step of `batch` beside its prediction."""
        stall_s, slot_use = self._stall_room_s(obs, state, batch), state.slot_use(obs, batch)
        return state.latency_margin, state.size_correction, stall_s, slot_use

    def _chosen(
        self,
        obs: Observation,
        state: AutoState,
        batch: tuple[WaitingRequest, ...],
        work: Work,
        fused: Plan | None,
    ) -> tuple[Plan, tuple[Alternative, ...]]:
        slot_use, stall_s = state.slot_use(obs, batch), self._stall_room_s(obs, state, batch)
        steady_s = self.fused.steady_step_s(obs, work.shape)
        return fused_or_split(
            obs,
            batch,
            self.split.best_fit(
                obs, work, state.guard, stall_s=stall_s, slot_use=slot_use, steady_s=steady_s
            ),
            fused,
            context=self.context,
            table=self.table,
            prefill_correction=state.prefill_correction,
            slot_use=slot_use,
            steady_s=steady_s,
        )

    def _order(self, obs: Observation, state: AutoState) -> OrderedQueue:
        if not self.options.by_slack:
            return OrderedQueue(order=tuple(obs.waiting), unreachable=(), state=state.queue)
        sms = self.table.prefill_sms(obs.partition_id)
        return order_by_slack(
            obs.waiting,
            now_s=obs.now_s,
            latency=self.context.latency,
            sms=sms,
            slowdown_ratio=self.context.latency.colocated_ratio(sms) * state.prefill_correction,
            state=state.queue,
            short_of_slots=tenants_short_of_slots(obs),
            only_aged=obs.are_slots_short,
        )

    def _batch(
        self, obs: Observation, order: tuple[WaitingRequest, ...], unreachable: Collection[str]
    ) -> tuple[WaitingRequest, ...]:
        if not self.options.by_slack:
            return form_prefill_batch(obs, queue=order, max_tokens=BATCH_TOKENS)
        latency, sms = self.context.latency, self.table.prefill_sms(obs.partition_id)
        return form_timely_batch(obs, order, unreachable, latency, sms=sms, max_tokens=BATCH_TOKENS)

    # --- a prefill that is under way, or must be in chunks

    def _next_chunk(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        """A batch that began fused stays so, and what a step leaves goes to those who wait."""
        queue = self._order(obs, state)
        batch = form_prefill_batch(obs, queue=queue.order, max_tokens=BATCH_TOKENS)
        plan = self._next_step(obs, state, batch)
        first = before_the_chunk(obs, queue, batch, plan, self.context.latency, self.table.rules.total_sms)
        if first and self.options.preemption and self.options.by_slack:
            plan = self.fused.holding(obs, plan, first, chunk_last=True)
            decision = replace(fused_decision(obs, plan, first, queue=queue), chunk_last=True)
            return decision, replace(state.begun(queue, first, obs.now_s), has_chunk_waited=False)
        overtaking = self._overtake_chunk(obs, state, queue, plan) if self.options.preemption else None
        if overtaking is not None:
            return overtaking
        left = plan.prompt_tokens
        if obs.prefill is not None:
            left -= obs.prefill.shape.new_tokens - obs.prefill.done_tokens
        may_begin = partial(self._would_be_fused, obs, state, queue.unreachable, plan)
        fitting = fitting_within(batch, left, queue.unreachable, may_begin)
        if len(fitting) < len(batch):
            plan = self.fused.holding(obs, plan, fitting)
        decision = fused_decision(obs, plan, fitting, queue=queue)
        return decision, replace(state.begun(queue, fitting, obs.now_s), has_chunk_waited=False)

    def _would_be_fused(
        self,
        obs: Observation,
        state: AutoState,
        unreachable: Collection[str],
        plan: Plan,
        rest: tuple[WaitingRequest, ...],
    ) -> bool:
        """Whether the batch that these begin would go in steps like this plan's, were it begun now."""
        batch = self._batch(obs, rest, unreachable)
        work = new_work(batch, self.context.layers)
        if not self.options.split or not obs.limits.holds(work.shape.new_tokens):
            return True
        if not self.options.fuse or not obs.decode.bs or not plan.meets:
            return False
        total_s = self.fused.total_s(obs, state.size_correction, work.shape, plan.prompt_tokens)
        chosen, _ = self._chosen(obs, state, batch, work, plan._replace(finish_s=total_s))
        return chosen.kind is plan.kind

    def _overtake_chunk(
        self, obs: Observation, state: AutoState, queue: OrderedQueue, plan: Plan
    ) -> tuple[Decision, AutoState] | None:
        """A step of waiting requests alone, which the prompt in chunks sits out."""
        batch = form_prefill_batch(
            obs, queue=urgent_beside_chunks(obs, queue, plan, has_chunk_waited=state.has_chunk_waited)
        )
        if not batch:
            return None
        alone = replace(obs, prefill=None)
        tokens = sum(request.new_tokens for request in batch)
        own = self.fused.plan(alone, tokens, self.fused.step_s(alone, tokens, batch))
        decision = replace(
            fused_decision(alone, own, batch, queue=queue), preempt=True, reason=Reason.PREEMPTED_FOR_SHORTER
        )
        return decision, replace(state.begun(queue, batch, obs.now_s), has_chunk_waited=True)

    def _by_layers(
        self,
        obs: Observation,
        state: AutoState,
        work: Work | None = None,
        batch: tuple[WaitingRequest, ...] = (),
    ) -> Decision:
        """The best split for the prefill that goes on, or for `work` on `batch`."""
        work = work or next_work(obs, self.context.layers)
        if work is None:
            return without_prefill(obs, self.table)
        stall_s = self._stall_room_s(obs, state, obs.waiting)
        slot_use = state.slot_use(obs, batch or obs.under_way[0].requests)
        steady_s = self.fused.steady_step_s(obs, work.shape)
        plan = self.split.best_fit(
            obs, work, state.guard, stall_s=stall_s, slot_use=slot_use, steady_s=steady_s
        )
        return split_decision(obs, work, plan)

    def _overtake(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState] | None:
        """Waiting requests that would miss their targets behind the prefill that runs, or that would go on
        now, overtake it together."""
        running, first = obs.prefill, obs.under_way[0]
        if not self.options.preemption or not obs.waiting:
            return None
        most = obs.limits.max_set_aside if self.options.nesting else 1
        if running is not None and len(obs.set_aside) >= most:
            return None
        sms = self.table.prefill_sms(obs.partition_id)
        ratio = self.context.latency.colocated_ratio(sms) * state.prefill_correction
        left_s = ratio * self.split.left_s(first, sms)
        if not is_due_before(obs.waiting, obs.now_s + left_s + left_s):
            return None  # what is shorter than the prefill's rest can wait for it: do not order the queue
        queue = self._order(obs, state)
        lefts_s = [left_s, *(ratio * self.split.left_s(unit, sms) for unit in obs.under_way[1:])]
        urgent = urgent_beside_layers(
            obs, queue, self.context.latency, sms=sms, left_s=lefts_s, max_tokens=BATCH_TOKENS
        )
        batch = form_prefill_batch(obs, queue=urgent, max_tokens=BATCH_TOKENS) if urgent else ()
        if not batch:
            return None
        if first.layers_in_flight:
            return drain_to_preempt(obs), state
        work = new_work(batch, self.context.layers, preempt=running is not None)
        decision = self._by_layers(obs, state, work, batch)
        return replace(decision, order=queue.by), state.begun(queue, batch, obs.now_s)

    def _stall_room_s(self, obs: Observation, state: AutoState, queue: Sequence[WaitingRequest]) -> float:
        return stall_room_s(
            obs, queue, state.latency_margin, self.context.latency, self.table.rules.total_sms
        )

    def _fixed(self, obs: Observation, state: AutoState) -> Decision:
        """The best fixed plan, in order of arrival.

        Steps take longer than predicted, or predictions would be in use: who is late even by them is late
        for sure, and is refused where its tenant wants that.
        """
        refused = self._order(obs, state).refused if obs.waiting else ()
        left = [request for request in obs.waiting if request.request_id not in refused]
        batch = form_prefill_batch(obs, queue=left)
        if obs.prefill is None and not batch:
            decision = decode_alone(obs, self.table)
        else:
            decision = fused_decision(obs, self.fused.fixed_step(obs, batch), batch)
        return replace(decision, refuse=refused) if refused else decision

    def initial_state(self) -> AutoState:
        """The guard as it was profiled, no credit."""
        return AutoState(guard=self.context.guard)

    def learn(self, feedback: Feedback, state: AutoState) -> AutoState:
        """From a step."""
        return after_step(state, feedback, self.split, uses_guard=self.options.guard)

    def learn_prefill(self, feedback: PrefillFeedback, state: AutoState) -> AutoState:
        """From a prefill that ended."""
        return after_prefill(state, feedback, self.context.latency)

    def adopt(self, state: AutoState, before: PolicyContext, *, is_refined: bool) -> AutoState:
        """What still holds with this policy's context in place of `before`."""
        return adopted(state, self.split, before, is_refined=is_refined)

    # --- for those who ask what would be if

    def plans(self, obs: Observation, state: AutoState) -> tuple[Plan, ...]:
        """For the prefill that goes on or is next: every split, and the fused steps that meet the target."""
        if _is_by_layers(obs):
            work = next_work(obs, self.context.layers)
            return self.split.every(obs, work, state.guard) if work is not None else ()
        if state.breaker.is_open:
            batch = form_prefill_batch(obs)
            return (self.fused.fixed_step(obs, batch),) if obs.prefill is not None or batch else ()
        queue = self._order(obs, state)
        if obs.prefill is not None:
            batch = form_prefill_batch(obs, queue=queue.order, max_tokens=BATCH_TOKENS)
            return (self._next_step(obs, state, batch),)
        batch = self._batch(obs, queue.order, queue.unreachable)
        if not batch:
            return ()
        work = new_work(batch, self.context.layers)
        if not self.options.split or not obs.limits.holds(work.shape.new_tokens):
            return (self._next_step(obs, state, batch),)
        learned = self._learned(obs, state, batch)
        fused = self.fused.whole_batch(obs, batch, work.shape, *learned) if self.options.fuse else None
        splits = self.split.every(obs, work, state.guard)
        return splits if fused is None else (*splits, fused)


def _is_by_layers(obs: Observation) -> bool:
    """Whether a prefill is under way that cannot go on in chunks."""
    running = obs.prefill
    return obs.preempted is not None or (running is not None and running.mode is PrefillMode.LAYERWISE)
