"""`slack/POLICY` and `edf/POLICY`: an order of the queue in front of any other policy.

`slack` is the order of `auto`: least slack first, who is too late behind, and shares in overload
(`queueing.py`). `edf` is earliest deadline first alone: nobody is given up. The inner policy is shown the
queue in that order and decides all else, so that what the order gives can be told from what the inner policy
gives.

Sources: least-laxity scheduling cut off at lateness; earliest deadline first (Liu and Layland 1973).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, Policy, PolicyContext, StateT
from pdmuxd.engine.core.queueing import OrderedQueue, QueueState, admitted, begun_within, order_by_slack
from pdmuxd.engine.core.types import (
    Decision,
    Feedback,
    Mode,
    Observation,
    PrefillFeedback,
    QueueOrder,
    WaitingRequest,
)


class QueueRule(StrEnum):
    """How the queue is ordered."""

    SLACK = "slack"
    EDF = "edf"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedState(Generic[StateT]):
    """The inner policy's state, and what the order remembers."""

    inner: StateT
    queue: QueueState = field(default_factory=QueueState)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedPolicy(Generic[StateT]):
    """Decides in which order requests are seen; the inner policy decides the rest."""

    name: str
    context: PolicyContext
    rule: QueueRule
    inner: Policy[StateT]

    @property
    def table(self) -> PartitionTable:
        """The inner policy's."""
        return self.inner.table

    def initial_state(self) -> OrderedState[StateT]:
        """The inner policy's initial state; nobody is owed anything."""
        return OrderedState(inner=self.inner.initial_state())

    def decide(self, obs: Observation, state: OrderedState[StateT]) -> tuple[Decision, OrderedState[StateT]]:
        """Order the queue, ask the inner policy, and count what it admits."""
        if not obs.waiting:
            decision, inner = self.inner.decide(obs, state.inner)
            return decision, replace(state, inner=inner)
        queue = self._order(obs, state.queue)
        decision, inner = self.inner.decide(replace(obs, waiting=queue.order), state.inner)
        begun = _begun(obs, decision, queue.order)
        decision = replace(
            decision,
            order=queue.by,
            refuse=queue.refused,
            deprioritize=tuple(dict.fromkeys((*queue.unreachable, *decision.deprioritize))),
        )
        return decision, OrderedState(inner=inner, queue=admitted(queue, begun, obs.now_s))

    def plans(self, obs: Observation, state: OrderedState[StateT]) -> tuple[Plan, ...]:
        """The inner policy's, for the queue in this order."""
        order = self._order(obs, state.queue).order if obs.waiting else ()
        return self.inner.plans(replace(obs, waiting=order), state.inner)

    def learn(self, feedback: Feedback, state: OrderedState[StateT]) -> OrderedState[StateT]:
        """The inner policy learns."""
        return replace(state, inner=self.inner.learn(feedback, state.inner))

    def learn_prefill(self, feedback: PrefillFeedback, state: OrderedState[StateT]) -> OrderedState[StateT]:
        """The inner policy learns."""
        return replace(state, inner=self.inner.learn_prefill(feedback, state.inner))

    def adopt(
        self, state: OrderedState[StateT], before: PolicyContext, *, is_refined: bool
    ) -> OrderedState[StateT]:
        """What is owed does not depend on predictions."""
        return replace(state, inner=self.inner.adopt(state.inner, before, is_refined=is_refined))

    def _order(self, obs: Observation, state: QueueState) -> OrderedQueue:
        if self.rule is QueueRule.EDF:
            order = tuple(sorted(obs.waiting, key=_deadline_s))
            return OrderedQueue(order=order, unreachable=(), by=QueueOrder.DEADLINE, state=state)
        latency, sms = self.context.latency, self.table.prefill_sms(obs.partition_id)
        return order_by_slack(
            obs.waiting,
            now_s=obs.now_s,
            latency=latency,
            sms=sms,
            slowdown_ratio=latency.colocated_ratio(sms),
            state=state,
            only_aged=obs.are_slots_short,
        )


def _begun(
    obs: Observation, decision: Decision, order: Iterable[WaitingRequest]
) -> tuple[WaitingRequest, ...]:
    """Requests that begin, of those that are admitted: a fused step may leave no tokens for the last."""
    chosen = set(decision.admit)
    batch = tuple(request for request in order if request.request_id in chosen)
    if not batch or decision.mode is not Mode.FUSED:
        return batch
    tokens = decision.token_budget - obs.decode.bs
    if obs.prefill is not None and not decision.preempt:
        tokens -= obs.prefill.shape.new_tokens - obs.prefill.done_tokens
    return begun_within(batch, tokens)


def _deadline_s(request: WaitingRequest) -> float:
    return request.deadline_s
