"""`auto`: fused or split, whichever is predicted to finish the prefill sooner within the TBT target.

A fused batch reads the weights once and needs no second stream, which wins on short prompts; a split reads
a long prompt's KV once instead of once per chunk, gives decode just what it needs, and can be preempted
at any layer, which wins on long ones. The token budget of a fused step follows from the target; the
split is MuxWise's; the queue is served least slack first. Sources: DuetServe section 4 (aggregate unless
at risk), MuxWise section 3.4 (best fit, preemption), and `queueing.py` for the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter

from pdmuxd.engine.core.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.batching import form_prefill_batch
from pdmuxd.engine.core.fusing import BUDGET_LADDER
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.latency_margin import LatencyMargin
from pdmuxd.engine.core.misprediction_breaker import MispredictionBreaker
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.bestfit import BestFitPolicy, SplitOptions
from pdmuxd.engine.core.policies.fusedsteps import FusedSteps, decode_alone
from pdmuxd.engine.core.policies.layerwise import (
    Plan,
    Work,
    decide_split,
    drain_to_preempt,
    layers_for,
    new_work,
    next_work,
)
from pdmuxd.engine.core.queueing import OrderedQueue, next_credit, order_by_slack
from pdmuxd.engine.core.types import (
    NO_DECODE,
    Alternative,
    Decision,
    Feedback,
    Mode,
    Observation,
    PrefillMode,
    PrefillSample,
    Reason,
    WaitingRequest,
)

BATCH_TOKENS = 8192
"""Prompts join a batch up to this: compute is saturated by then, and the first waits for the last."""

SPLIT_WAIT_STEPS = 1.0
"""Decode steps that the prefill's SMs idle between two batches: half a one until the end of the first is
noticed, which is asked between steps, and one more if a request has just ended whose KV slot the step still
writes."""

LAUNCH_BOUND = 0.8
"""With nothing to decode, a batch that takes at most this share of its layers' time in one fused step, which
is replayed, would wait for its layers to be launched: it runs fused."""

FUSED_LIMIT_S = 2.0
"""A chunked prompt cannot be preempted: one that takes longer than this runs layer by layer instead."""

MAX_LOOK_AHEAD = 4
"""Decode steps launched at once in a split; the host's part is paid once for all of them."""

_deadline_s = attrgetter("deadline_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions:
    """Mechanisms that can be ablated."""

    preemption: bool = True
    guard: bool = True
    look_ahead: bool = True
    by_slack: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoState:
    """What `auto` remembers."""

    guard: ContentionGuard
    """How much decode suffers from prefill in a split."""
    aged_credit_tokens: float = 0.0
    """What requests with an unreachable deadline may spend (queueing.py)."""
    breaker: MispredictionBreaker = field(default_factory=MispredictionBreaker)
    latency_margin: LatencyMargin = field(default_factory=LatencyMargin)
    """Of fused steps, beyond what is typical of their size."""
    size_correction: BatchSizeCorrection = field(default_factory=BatchSizeCorrection)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoPolicy:
    """The default policy."""

    name: str
    context: PolicyContext
    table: PartitionTable
    options: AutoOptions
    split: BestFitPolicy
    fused: FusedSteps

    @classmethod
    def build(cls, name: str, context: PolicyContext, options: AutoOptions) -> AutoPolicy:
        """The splits of muxwise."""
        table = context.table()
        split = BestFitPolicy(
            name=name, context=context, table=table, options=SplitOptions(guard=options.guard)
        )
        fused = FusedSteps(context=context, table=table)
        return cls(name=name, context=context, table=table, options=options, split=split, fused=fused)

    def initial_state(self) -> AutoState:
        """The guard as it was profiled, no credit."""
        return AutoState(guard=self.context.guard)

    def learn(self, feedback: Feedback, state: AutoState) -> AutoState:
        """As MuxWise: a violation raises the guard. Fused steps have a bound of their own; steps that nobody
        foresaw cost trust, but for those that waited for the host as others did before."""
        guard = self.split.guard_after(feedback, state.guard)
        state = state if guard is state.guard else replace(state, guard=guard)
        predicted_s, measured_s = feedback.predicted_s, feedback.measured_s
        if predicted_s <= 0.0:
            return state
        if feedback.mode is Mode.FUSED:
            predicted_s, latency_margin, size_correction = self.fused.learn(
                feedback, state.latency_margin, state.size_correction
            )
            state = replace(state, latency_margin=latency_margin, size_correction=size_correction)
        else:
            latency_margin = state.latency_margin.without_a_step()
            state = (
                state
                if latency_margin is state.latency_margin
                else replace(state, latency_margin=latency_margin)
            )
        breaker = state.breaker.after(predicted_s=predicted_s, measured_s=measured_s)
        return state if breaker is state.breaker else replace(state, breaker=breaker)

    def learn_prefill(self, sample: PrefillSample, state: AutoState) -> AutoState:  # noqa: ARG002 - the interface
        """Nothing is learned from prefills."""
        return state

    def adopt(self, state: AutoState, before: PolicyContext, *, is_refined: bool) -> AutoState:
        """Margins and trust are of predictions; the credit is owed whatever is predicted."""
        guard = self.split.guard_adopted(state.guard, before, is_refined=is_refined)
        if is_refined:
            return replace(state, guard=guard)
        return AutoState(guard=guard, aged_credit_tokens=state.aged_credit_tokens)

    def decide(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        """Go on with the prefill under way, or choose the next one and how to run it."""
        layerwise = obs.preempted or (obs.prefill and obs.prefill.mode is PrefillMode.LAYERWISE)
        if state.breaker.is_open and not layerwise:
            return self.fused.fixed(obs), state
        if obs.prefill is None and obs.preempted is None:
            return self._next_prefill(obs, state)
        if obs.prefill is not None and obs.prefill.mode is PrefillMode.CHUNKED:
            return self._chunked(obs, state)
        overtaking = self._preempt(obs, state)
        if overtaking is not None:
            return overtaking, state
        return self._layerwise(obs, state, next_work(obs, self.context.layers)), state

    # --- choosing

    def _next_prefill(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        queue = self._queue(obs, state)
        unreachable = frozenset(queue.unreachable)  # asked of every member; the order is the queue's
        batch = self._in_time(obs, queue.order, unreachable)
        if not batch:
            decision = decode_alone(obs, self.table)
        else:
            credit = next_credit(batch, unreachable, state.aged_credit_tokens)
            decision = self._start(obs, state, batch)
            state = replace(state, aged_credit_tokens=credit)
        return replace(decision, deprioritize=queue.unreachable) if queue.unreachable else decision, state

    def _in_time(
        self, obs: Observation, order: tuple[WaitingRequest, ...], unreachable: frozenset[str]
    ) -> tuple[WaitingRequest, ...]:
        """The next batch: it grows only while none of its members comes too late because of the others."""
        sms = self.split.prefill_sms(obs)
        colocated_ratio = self.context.latency.colocated_ratio(sms)
        batch: list[WaitingRequest] = []
        done_s, due_s = obs.now_s, float("inf")
        for request in form_prefill_batch(obs, queue=order, max_tokens=BATCH_TOKENS):
            own_s = self.context.latency.request_s(request.new_tokens, request.reused_tokens, sms)
            done_s += colocated_ratio * own_s
            is_unreachable = request.request_id in unreachable
            if not is_unreachable:
                due_s = min(due_s, request.deadline_s)
            if self.options.by_slack and batch and (is_unreachable or done_s > due_s):
                break
            batch.append(request)
        return tuple(batch)

    def _start(self, obs: Observation, state: AutoState, batch: tuple[WaitingRequest, ...]) -> Decision:
        """Run a new batch fused or split."""
        work = new_work(batch, self.context.layers)
        if not obs.limits.holds(work.shape.new_tokens):
            budget, step_s = self.fused.budget(
                obs, state.latency_margin, state.size_correction, batch, must=True
            )
            return self.fused.step(obs, budget or BUDGET_LADDER[0], step_s, batch)
        if not obs.decode.bs:
            shape, sms = work.shape, self.table.rules.total_sms
            step_s = self.context.latency.fused_s(shape, NO_DECODE, sms)
            if step_s <= LAUNCH_BOUND * self.context.latency.prefill_s(shape, sms):
                return self.fused.step(obs, shape.new_tokens, step_s, batch)
            return self._layerwise(obs, state, work)
        plan = self.split.best_fit(obs, work, state.guard)
        colocated_ratio = self.context.latency.colocated_ratio(
            self.table.groups[plan.partition_id].prefill_sms
        )
        split_s = (plan.numbers.predicted_prefill_s or 0.0) * colocated_ratio
        infeasible = plan.reason is Reason.TBT_INFEASIBLE
        budget, step_s = self.fused.budget(
            obs, state.latency_margin, state.size_correction, batch, must=False
        )
        if budget:
            fused_s = self.fused.total_s(obs, state.size_correction, work.shape, budget)
            wait_s = SPLIT_WAIT_STEPS * (plan.numbers.predicted_decode_s or 0.0)
            if infeasible or fused_s <= min(split_s + wait_s, FUSED_LIMIT_S):
                rejected = (Alternative(label="split", predicted_s=split_s),)
                return self.fused.step(obs, budget, step_s, batch, rejected=rejected)
            plan = replace(plan, rejected=(*plan.rejected, Alternative(label="fused", predicted_s=fused_s)))
        return self._layerwise(obs, state, work, plan)

    def _queue(self, obs: Observation, state: AutoState) -> OrderedQueue:
        if not self.options.by_slack:
            return OrderedQueue(order=tuple(obs.waiting), unreachable=())
        sms = self.split.prefill_sms(obs)
        return order_by_slack(
            obs.waiting,
            now_s=obs.now_s,
            latency=self.context.latency,
            sms=sms,
            slowdown_ratio=self.context.latency.colocated_ratio(sms),
            aged_credit_tokens=state.aged_credit_tokens,
        )

    # --- fused

    def _chunked(self, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        """A batch that began fused stays so, and what its budget leaves goes to those who wait.

        If no budget meets the target any more, the smallest is used.
        """
        queue = self._queue(obs, state)
        batch = form_prefill_batch(obs, queue=queue.order, max_tokens=BATCH_TOKENS)
        budget, step_s = self.fused.budget(obs, state.latency_margin, state.size_correction, batch, must=True)
        budget = budget or BUDGET_LADDER[0]
        left = budget - (obs.prefill.shape.new_tokens - obs.prefill.done_tokens if obs.prefill else 0)
        fitting: list[WaitingRequest] = []
        for request in batch:
            if request.new_tokens <= left and request.request_id not in queue.unreachable:
                left -= request.new_tokens
                fitting.append(request)
        if len(fitting) < len(batch):
            step_s = self.fused.step_s(obs, budget, fitting)
        decision = self.fused.step(obs, budget, step_s, tuple(fitting))
        return replace(decision, deprioritize=queue.unreachable) if queue.unreachable else decision, state

    # --- split

    def _layerwise(
        self, obs: Observation, state: AutoState, work: Work | None, plan: Plan | None = None
    ) -> Decision:
        decision = decide_split(
            obs,
            self.table,
            work,
            plan=lambda work: plan or self.split.best_fit(obs, work, state.guard),
            alone_layers=self.split.alone_layers,
        )
        return self._look_ahead(work, decision) if self.options.look_ahead else decision

    def _look_ahead(self, work: Work | None, decision: Decision) -> Decision:
        """Launch more decode steps at once while the prefill beside them lasts, and layers to cover them."""
        n = decision.numbers
        if work is None or not decision.decode_steps or not n.predicted_decode_s or not n.predicted_prefill_s:
            return decision
        layers = self.context.layers
        worst_s = n.predicted_decode_s * (n.guard_ratio or 1.0)
        left_s = n.predicted_prefill_s * (work.layers_left + work.layers_in_flight) / layers
        steps = min(MAX_LOOK_AHEAD, int(left_s / worst_s))
        if steps <= 1 or decision.reason is Reason.SWITCH_WHEN_DRAINED:
            return decision
        count = layers_for(worst_s * steps, n.predicted_prefill_s, layers) - work.layers_in_flight
        return replace(decision, decode_steps=steps, prefill_layers=max(0, min(count, work.layers_left)))

    def _preempt(self, obs: Observation, state: AutoState) -> Decision | None:
        """A waiting request that would miss its target behind the running prefill may overtake it, once.

        The running one must still meet its own target, or miss it already (invariants 3, 4).
        """
        running = obs.prefill
        if not self.options.preemption or running is None or obs.preempted is not None:
            return None
        if running.was_preempted or not obs.waiting:
            return None
        sms = self.split.prefill_sms(obs)
        left_s = self.split.left_s(running, sms)
        if min(map(_deadline_s, obs.waiting)) >= obs.now_s + left_s + left_s:
            return None  # who is shorter than what is left can wait for it: the queue need not be ordered
        already_unreachable = obs.now_s + left_s > running.earliest_deadline_s
        queue = self._queue(obs, state)
        batch = form_prefill_batch(obs, queue=queue.order[:1])
        if not batch or batch[0].request_id in queue.unreachable:
            return None
        request = batch[0]
        new_s = self.context.latency.request_s(request.new_tokens, request.reused_tokens, sms)
        can_wait = obs.now_s + left_s + new_s <= request.deadline_s
        if can_wait or new_s >= left_s:
            return None
        if not already_unreachable and obs.now_s + new_s + left_s > running.earliest_deadline_s:
            return None
        if running.layers_in_flight:
            return drain_to_preempt(obs)
        return self._layerwise(obs, state, new_work(batch, self.context.layers, preempt=True))
