"""What every policy is made of: its context, its state and its two methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pdmuxd.engine.core.awd import AwdState
from pdmuxd.engine.core.boundary import BoundaryFit, BoundarySamples
from pdmuxd.engine.core.fusedsizes import FusedSizes
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.overrun import Overrun
from pdmuxd.engine.core.partitions import Partition, PartitionTable, SmRules, even_steps
from pdmuxd.engine.core.trust import Trust
from pdmuxd.engine.core.types import Decision, Feedback, Observation, PrefillSample


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What a policy is built from: the device's rules, the model's layers and its latencies."""

    rules: SmRules
    layers: int
    latency: LatencyModel
    guard: ContentionGuard
    splits: tuple[Partition, ...] | None = None
    """The operator's; None for each policy's own."""
    captures_prefill: bool = True
    """Whether the engine has captured prefills: `Decision.prefill_graph` is for one that has."""
    delivery_s: float = 0.0
    """How much further apart two tokens reach a client than the engine made them: 99% of them, at most."""

    def planned_tbt_s(self, target_s: float | None) -> float:
        """What a step may take for its tokens to meet a TBT target; a tenth is kept for delivery at most."""
        if target_s is None:
            return float("inf")
        return target_s - min(self.delivery_s, 0.1 * target_s)

    def table(self) -> PartitionTable:
        """The operator's splits, or six at 16-SM steps, as MuxWise. Raises: PartitionError."""
        if self.splits is None:
            return even_steps(self.rules)
        return PartitionTable(rules=self.rules, splits=self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthAwareState:
    """What `pla` remembers: the boundary, the batching of shorts, whose turn it is."""

    samples: BoundarySamples = field(default_factory=BoundarySamples)
    fit: BoundaryFit | None = None
    """Of `samples`; None while they do not allow one."""
    awd: AwdState = field(default_factory=AwdState)
    short_batches: int = 0
    """Batches of shorts since the last long prefill."""


TRUSTED = Trust()
FIRST_OVERRUN = Overrun()
AS_FITTED = FusedSizes()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """What a policy carries from one decision to the next. A new kind of memory is a new field."""

    guard: ContentionGuard
    aged_credit_tokens: float = 0.0
    """What requests past saving may spend (queueing.py)."""
    trust: Trust = TRUSTED
    overrun: Overrun = FIRST_OVERRUN
    """Of fused steps, beyond what is typical of their size."""
    sizes: FusedSizes = AS_FITTED
    length_aware: LengthAwareState = field(default_factory=LengthAwareState)


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

    def learn_prefill(self, sample: PrefillSample, state: PolicyState) -> PolicyState:
        """The state after a prefill of known shape was measured."""


class KeepsState:
    """For policies that learn nothing, or not from everything."""

    def learn(self, feedback: Feedback, state: PolicyState) -> PolicyState:  # noqa: ARG002 - the interface
        """Return the state as it is."""
        return state

    def learn_prefill(self, sample: PrefillSample, state: PolicyState) -> PolicyState:  # noqa: ARG002 - the interface
        """Return the state as it is."""
        return state
