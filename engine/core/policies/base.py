"""What every policy is made of: its context, its plans and its methods."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.partitions import Partition, PartitionTable, SmRules, even_steps
from pdmuxd.engine.core.types import (
    NO_NUMBERS,
    Alternative,
    Decision,
    DecisionNumbers,
    Feedback,
    Observation,
    PrefillFeedback,
    Reason,
)

MEASURED_DELIVERY_SHARE = 0.25
"""Of a TBT target, at most, for a delivery that was measured: shorter steps make more events for a host that
is late already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What a policy is built from: the device's rules, the model's layers and its latencies."""

    rules: SmRules
    layers: int
    latency: LatencyModel
    guard: ContentionGuard
    learned: StepEstimates | None = None
    """What steps are taken to take over their prediction before any was seen, but for its guard; None: what
    they were predicted."""
    splits: tuple[Partition, ...] | None = None
    """The engine's splits, for policies that have none of their own; None: MuxWise's."""
    captures_prefill: bool = True
    """Whether the engine has captured prefills, which `Decision.prefill_graph` needs."""
    delivery_s: float = 0.0
    """By how much the p99 of the gaps between tokens is longer at clients than in the engine."""
    delivery_share: float = 0.1
    """The share of a TBT target that is left for that, at most."""

    def planned_tbt_s(self, target_s: float | None) -> float:
        """What a step may take if its tokens are to meet a TBT target: the target less the delivery, for
        which at most `delivery_share` of it is kept."""
        return float("inf") if target_s is None else target_s - (self.left_for_delivery_s(target_s) or 0.0)

    def left_for_delivery_s(self, target_s: float | None) -> float | None:
        """What a step leaves of a TBT target for delivery; None where that is nothing."""
        return None if target_s is None else min(self.delivery_s, self.delivery_share * target_s) or None

    def delivering(self, delivery_s: float | None) -> PolicyContext:
        """The policy with a delivery that was measured, for which more of a target may be kept."""
        if delivery_s is None:
            return self
        return replace(self, delivery_s=delivery_s, delivery_share=MEASURED_DELIVERY_SHARE)

    def table(self) -> PartitionTable:
        """The splits given, or six at 16-SM steps, as MuxWise. Raises: PartitionError."""
        if self.splits is None:
            return even_steps(self.rules)
        return PartitionTable(rules=self.rules, splits=self.splits)


class PlanKind(StrEnum):
    """How a plan uses the device."""

    FUSED = "fused"
    """Prompt tokens and the decode batch in one step on all SMs."""
    WHOLE = "whole"
    """All prompt tokens in one step, which is replayed as a graph; nothing decodes, or waits for it."""
    SPLIT = "split"
    """Layers on the SMs of the prefill side beside decode steps on the others; alone they have all SMs."""
    WAIT = "wait"
    """No prefill now: others may come soon, or work in flight has to end first."""


class Plan(NamedTuple):
    """One way to run the prefill at hand, with what is predicted of it.

    A tuple, since some are made for every decision: a frozen dataclass takes 0.5 us longer to make.
    """

    kind: PlanKind
    partition_id: int
    reason: Reason
    """As the decision would say it."""
    meets: bool = True
    """Whether every gap between tokens is predicted to be within the TBT target; true if nothing decodes."""
    worst_gap_s: float | None = None
    """The longest gap between two tokens to expect; None where nothing decodes or nothing is predicted."""
    most_s: float = math.inf
    """What its steps should take at most where the TBT target is looser."""
    finish_s: float | None = None
    """Predicted seconds until the last of the prompt's tokens is done; None if nobody compares them."""
    decode_steps: int = 0
    """Launched at once."""
    prefill_layers: int = 0
    """Prefill layers launched beside the decode steps; fewer if fewer are left."""
    prompt_tokens: int = 0
    """Of one step, at most; 0 where layers are launched."""
    numbers: DecisionNumbers = NO_NUMBERS
    rejected: tuple[Alternative, ...] = ()
    """Plans of the same kind that were looked at first and do not meet the target."""


StateT = TypeVar("StateT")


class Policy(Protocol[StateT]):
    """A scheduling policy: pure, so that every rank decides the same (invariant 6).

    `StateT` is what it remembers from one decision to the next: a frozen value of its own type, which nobody
    else reads. The engine's loop keeps it, hands it back unchanged, and asks the policy for the next one.
    """

    @property
    def name(self) -> str:
        """The specification that builds this policy again."""

    @property
    def table(self) -> PartitionTable:
        """The groups that its decisions index."""

    @property
    def context(self) -> PolicyContext:
        """What it was built from."""

    def initial_state(self) -> StateT:
        """The state before the first decision."""

    def decide(self, obs: Observation, state: StateT) -> tuple[Decision, StateT]:
        """What to do until the next safe point."""

    def plans(self, obs: Observation, state: StateT) -> tuple[Plan, ...]:
        """Every way to run the prefill that it would go on with or start; `decide` takes one of them. Empty
        if there is no prefill.

        It is for what-if questions: `decide` itself looks at no more plans than it needs.
        """

    def learn(self, feedback: Feedback, state: StateT) -> StateT:
        """The state after a decode step beside a prefill, or a fused step, was measured."""

    def learn_prefill(self, feedback: PrefillFeedback, state: StateT) -> StateT:
        """The state after a prefill by layers was measured."""

    def adopt(self, state: StateT, before: PolicyContext, *, is_refined: bool) -> StateT:
        """The state for this policy's context; `state` was learned by the same policy in the context
        `before`.

        `is_refined`: both contexts are of one profile, and this one has what serving has taught the store
        since; what was learned here stays. Otherwise the predictions are different ones: what was learned
        about the old predictions is forgotten, and what has nothing to do with predictions (who is owed a
        turn, what the device took) stays.
        """


AnyPolicy: TypeAlias = Policy[Any]
"""A policy whose state only itself can read: keep it as an `object`."""


class Stateless:
    """Base of policies that remember nothing: their state is None."""

    def initial_state(self) -> None:
        """There is none."""

    def learn(self, feedback: Feedback, state: None) -> None:
        """Nothing is learned."""

    def learn_prefill(self, feedback: PrefillFeedback, state: None) -> None:
        """Nothing is learned."""

    def adopt(self, state: None, before: PolicyContext, *, is_refined: bool) -> None:
        """There is nothing to keep or to forget."""
