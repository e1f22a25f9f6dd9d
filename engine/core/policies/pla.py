"""`pla[+OPTION...][/INNER]`: a length-aware prefill queue in front of any other policy.

Waiting requests are short or long by the compute/memory crossover. The inner policy is shown one class at
a time, so that no batch mixes them: all shorts that adaptive wait-depth batching puts together, or one long.
Between them turns are taken, so that neither starves. A batch of shorts that a captured graph holds
runs as that graph. All else, the split, the budget, preemption, is the inner policy's.

Source: PLA-Serve sections 3.1 and 3.2, temporal disaggregation on one instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

from pdmuxd.engine.core.adaptive_batching import (
    AdaptiveBatchingState,
    choose_batch,
    dispatched,
    hold_deadline_free_s,
    hold_s,
    nearest_graph,
    with_arrivals,
)
from pdmuxd.engine.core.crossover import FLOOR_TOKENS, CrossoverFit, CrossoverSamples, is_short
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PlanKind, Policy, PolicyContext, StateT
from pdmuxd.engine.core.queueing import shape_of
from pdmuxd.engine.core.types import (
    Decision,
    Feedback,
    Mode,
    Observation,
    PrefillFeedback,
    PrefillGraph,
    PrefillMode,
    Reason,
    WaitingRequest,
)

MAX_SHORT_BATCHES = 4
"""Batches of shorts that may go before a waiting long; then it has its turn, whatever their deadlines."""

_SHORTEST_HOLD_S = 1e-6
"""Below this a wait is rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaOptions:
    """Mechanisms that can be switched off."""

    deadlines: bool = True
    """Off: the deadline-free mode, batches as large as there is work for."""
    graphs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaState(Generic[StateT]):
    """The inner policy's state, and what `pla` remembers of prefills measured, of shorts, of turns."""

    inner: StateT
    samples: CrossoverSamples = field(default_factory=CrossoverSamples)
    fit: CrossoverFit | None = None
    """The fit to `samples`; None while there are too few for one."""
    adaptive_batching: AdaptiveBatchingState = field(default_factory=AdaptiveBatchingState)
    short_batches: int = 0
    """Batches of shorts since the last long prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaPolicy(Generic[StateT]):
    """Decides who may be seen; the inner policy decides the rest."""

    name: str
    context: PolicyContext
    inner: Policy[StateT]
    options: PlaOptions

    @property
    def table(self) -> PartitionTable:
        """The inner policy's."""
        return self.inner.table

    @property
    def uses_graphs(self) -> bool:
        """Whether batches of shorts run as captured graphs."""
        return self.options.graphs and self.context.captures_prefill

    def initial_state(self) -> PlaState[StateT]:
        """The inner policy's initial state; nothing is known yet of lengths and arrivals."""
        return PlaState(inner=self.inner.initial_state())

    def learn(self, feedback: Feedback, state: PlaState[StateT]) -> PlaState[StateT]:
        """The inner policy learns."""
        return replace(state, inner=self.inner.learn(feedback, state.inner))

    def learn_prefill(self, feedback: PrefillFeedback, state: PlaState[StateT]) -> PlaState[StateT]:
        """Fit the crossover again; if the samples do not allow a fit, FLOOR_TOKENS stays in force."""
        state = replace(state, inner=self.inner.learn_prefill(feedback, state.inner))
        if feedback.sample is None:
            return state
        samples = state.samples.plus(feedback.sample)
        return replace(state, samples=samples, fit=samples.fit())

    def adopt(self, state: PlaState[StateT], before: PolicyContext, *, is_refined: bool) -> PlaState[StateT]:
        """What was measured of prefills, and whose turn it is, does not depend on predictions."""
        return replace(state, inner=self.inner.adopt(state.inner, before, is_refined=is_refined))

    def decide(self, obs: Observation, state: PlaState[StateT]) -> tuple[Decision, PlaState[StateT]]:
        """Choose the class, ask the inner policy, and attach the graph to what it admits."""
        shorts, longs = _by_class(obs.waiting, state.fit)
        state = replace(state, adaptive_batching=with_arrivals(state.adaptive_batching, shorts, obs.now_s))
        if self.options.deadlines:
            shorts.sort(key=_deadline_s)
        decision, inner = self._ask(obs, state, shorts, longs)
        if inner is not state.inner:
            state = replace(state, inner=inner)
        if decision.admit:
            decision, state = self._admitted(obs, decision, state)
        if obs.waiting_count > len(obs.waiting) and longs:
            hiding = tuple(request.request_id for request in longs)
            decision = replace(decision, deprioritize=tuple(dict.fromkeys((*decision.deprioritize, *hiding))))
        return decision, state

    def plans(self, obs: Observation, state: PlaState[StateT]) -> tuple[Plan, ...]:
        """The inner policy's plans for the requests that it would be shown now; or the plan to wait for more
        requests."""
        shorts, longs = _by_class(obs.waiting, state.fit)
        if self.options.deadlines:
            shorts.sort(key=_deadline_s)
        if obs.prefill is not None or obs.preempted is not None:
            return self.inner.plans(_showing(obs, self._colocated(obs, state, shorts, longs)), state.inner)
        if longs and not (shorts and self._shorts_first(obs, state, shorts, longs[0])):
            admitted = self._ask_one_long(obs, state.inner, longs)[0].admit
            if admitted or not shorts or state.short_batches >= MAX_SHORT_BATCHES:
                view = tuple(request for request in longs if request.request_id in admitted)
                return self.inner.plans(_showing(obs, view), state.inner)
        batch = self._batch(obs, shorts, longs)
        wait_s = self._hold_s(obs, state, batch) if batch and not longs else 0.0
        if wait_s > _SHORTEST_HOLD_S:
            return (Plan(kind=PlanKind.WAIT, partition_id=obs.partition_id, reason=Reason.HOLD_FOR_BATCH),)
        return self.inner.plans(_showing(obs, batch), state.inner)

    # --- which class

    def _ask(
        self,
        obs: Observation,
        state: PlaState[StateT],
        shorts: list[WaitingRequest],
        longs: list[WaitingRequest],
    ) -> tuple[Decision, StateT]:
        """One class at a time. If a class has its turn but its KV does not fit, the other class goes."""
        if obs.prefill is not None or obs.preempted is not None:
            return self.inner.decide(_showing(obs, self._colocated(obs, state, shorts, longs)), state.inner)
        if longs and not (shorts and self._shorts_first(obs, state, shorts, longs[0])):
            decision, after = self._ask_one_long(obs, state.inner, longs)
            if decision.admit or not shorts or state.short_batches >= MAX_SHORT_BATCHES:
                return decision, after
        batch = self._batch(obs, shorts, longs)
        wait_s = self._hold_s(obs, state, batch) if batch and not longs else 0.0
        if wait_s <= _SHORTEST_HOLD_S:
            return self.inner.decide(_showing(obs, batch), state.inner)
        decision, after = self.inner.decide(_showing(obs, ()), state.inner)
        if decision.mode is Mode.IDLE:
            decision = replace(decision, reason=Reason.HOLD_FOR_BATCH, wake_at_s=obs.now_s + wait_s)
        return decision, after

    def _shorts_first(
        self, obs: Observation, state: PlaState[StateT], shorts: list[WaitingRequest], long: WaitingRequest
    ) -> bool:
        """Whether it is their turn, or one of them would meet its deadline now and miss it behind the
        long."""
        if state.short_batches == 0:
            return True
        if state.short_batches >= MAX_SHORT_BATCHES or not self.options.deadlines:
            return False
        latency, sms = self.context.latency, self.table.rules.total_sms
        ready_s = obs.now_s + latency.prefill_s(shape_of(tuple(shorts)), sms)
        long_s = latency.request_s(long.new_tokens, long.reused_tokens, sms)
        return any(ready_s <= request.deadline_s < ready_s + long_s for request in shorts)

    def _ask_one_long(
        self, obs: Observation, inner: StateT, longs: list[WaitingRequest]
    ) -> tuple[Decision, StateT]:
        """The inner policy picks which long request goes first, and then decides about that one alone."""
        decision, after = self.inner.decide(_showing(obs, tuple(longs)), inner)
        if len(decision.admit) <= 1:
            return decision, after
        first = next(request for request in longs if request.request_id == decision.admit[0])
        alone, after = self.inner.decide(_showing(obs, (first,)), inner)
        return replace(alone, deprioritize=decision.deprioritize), after

    def _colocated(
        self,
        obs: Observation,
        state: PlaState[StateT],
        shorts: list[WaitingRequest],
        longs: list[WaitingRequest],
    ) -> tuple[WaitingRequest, ...]:
        """Requests shown while a prefill is under way: shorts that may join it, or that may overtake a long
        one."""
        running = obs.prefill
        if running is None or not shorts:
            return ()
        _, running_longs = _by_class(running.requests, state.fit)
        if running.mode is PrefillMode.LAYERWISE and running_longs:
            return self._batch(obs, shorts, longs)
        if running.mode is PrefillMode.CHUNKED and not running_longs and not longs:
            return self._batch(obs, shorts, longs)
        return ()

    # --- which shorts, and when

    def _batch(
        self, obs: Observation, shorts: list[WaitingRequest], longs: list[WaitingRequest]
    ) -> tuple[WaitingRequest, ...]:
        """A bucket that leaves others behind is worth it only if no long would come between."""
        may_split = not longs and self.uses_graphs
        return choose_batch(shorts, _budget_tokens(obs), may_split=may_split)

    def _hold_s(self, obs: Observation, state: PlaState[StateT], batch: Sequence[WaitingRequest]) -> float:
        if not self.options.deadlines:
            return hold_deadline_free_s(batch, now_s=obs.now_s)
        service_s = self.context.latency.prefill_s(shape_of(tuple(batch)), self.table.rules.total_sms)
        return hold_s(state.adaptive_batching, batch, now_s=obs.now_s, service_s=service_s)

    # --- what was admitted

    def _admitted(
        self, obs: Observation, decision: Decision, state: PlaState[StateT]
    ) -> tuple[Decision, PlaState[StateT]]:
        """Count the turn, adapt W and D, and run the batch as a graph if all of it starts now."""
        chosen = set(decision.admit)
        batch = [request for request in obs.waiting if request.request_id in chosen]
        if not is_short(batch[0].new_tokens, batch[0].reused_tokens, state.fit):
            return decision, replace(state, short_batches=0)
        arrivals = [request.arrival_s for request in batch]
        adaptive_batching = dispatched(
            state.adaptive_batching, depth=len(batch), fill_s=max(arrivals) - min(arrivals)
        )
        state = replace(state, adaptive_batching=adaptive_batching, short_batches=state.short_batches + 1)
        graph = self._graph(obs, decision, [request.new_tokens for request in batch])
        if graph is not None:
            layers = self.context.layers if decision.prefill_layers else 0
            decision = replace(decision, prefill_graph=graph, prefill_layers=layers)
        return decision, state

    def _graph(self, obs: Observation, decision: Decision, lengths: list[int]) -> PrefillGraph | None:
        starts = obs.prefill is None or decision.preempt
        if not self.uses_graphs or not starts:
            return None
        if decision.token_budget:
            decode_bs = obs.decode.bs if decision.mode is Mode.FUSED and decision.decode_steps else 0
            if sum(lengths) > decision.token_budget - decode_bs:
                return None
        return nearest_graph(lengths, _budget_tokens(obs))


def _by_class(
    waiting: Sequence[WaitingRequest], fit: CrossoverFit | None
) -> tuple[list[WaitingRequest], list[WaitingRequest]]:
    """(shorts, longs), each in the order given."""
    most_tokens = FLOOR_TOKENS if fit is None else max(FLOOR_TOKENS, fit.largest_crossover_tokens)
    shorts: list[WaitingRequest] = []
    longs: list[WaitingRequest] = []
    for request in waiting:
        new = request.new_tokens
        short = new <= FLOOR_TOKENS or (new <= most_tokens and is_short(new, request.reused_tokens, fit))
        (shorts if short else longs).append(request)
    return shorts, longs


def _showing(obs: Observation, view: tuple[WaitingRequest, ...]) -> Observation:
    return replace(obs, waiting=view, waiting_count=len(view))


def _budget_tokens(obs: Observation) -> int:
    """M: what a batch may hold."""
    return max(1, min(obs.limits.max_prefill_tokens, obs.kv_free_tokens))


def _deadline_s(request: WaitingRequest) -> float:
    return request.deadline_s
