"""What every policy is made of: its context, its state and its two methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.partitions import PartitionTable, SmRules
from pdmuxd.engine.core.types import Decision, Feedback, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What a policy is built from: the device's rules, the model's layers and its latencies."""

    rules: SmRules
    layers: int
    latency: LatencyModel
    guard: ContentionGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """What a policy carries from one decision to the next. A new kind of memory is a new field."""

    guard: ContentionGuard
    aged_credit_tokens: float = 0.0
    """What requests past saving may spend (queueing.py)."""


class Policy(Protocol):
    """A scheduling policy: pure, so that every rank decides the same (invariant 6)."""

    @property
    def name(self) -> str:
        """The specification that builds this policy again."""

    @property
    def table(self) -> PartitionTable:
        """The groups that its decisions index."""

    def initial_state(self) -> PolicyState:
        """The state before the first decision."""

    def decide(self, obs: Observation, state: PolicyState) -> tuple[Decision, PolicyState]:
        """What to do until the next safe point."""

    def learn(self, feedback: Feedback, state: PolicyState) -> PolicyState:
        """The state after a decode step beside a prefill was measured."""


class KeepsState:
    """For policies that learn nothing."""

    def learn(self, feedback: Feedback, state: PolicyState) -> PolicyState:  # noqa: ARG002 - the interface
        """Return the state as it is."""
        return state
