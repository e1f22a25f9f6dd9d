"""What `auto` remembers: of the device, and of those who wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.layerwise import SplitPlans
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.queueing import OrderedQueue, QueueState, admitted
from pdmuxd.engine.core.types import Observation, WaitingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoState:
    """What `auto` remembers."""

    estimates: StepEstimates
    """What steps and prefills take beside their predictions."""
    queue: QueueState = field(default_factory=QueueState)
    """Credit of those with an unreachable deadline, and the tenants' shares in overload."""
    has_chunk_waited: bool = False
    """Whether the prompt in chunks sat the last step out."""

    def begun(self, queue: OrderedQueue, batch: Sequence[WaitingRequest], now_s: float) -> AutoState:
        """The state with the prefill of `batch`, taken from `queue`, begun."""
        return replace(self, queue=admitted(queue, batch, now_s))

    def slot_use(self, obs: Observation, requests: Sequence[WaitingRequest]) -> SlotUse | None:
        """What these requests would occupy of the decode slots, if more wait than slots are free."""
        return SlotUse.seen(obs, requests, self.estimates)


def adopted(state: AutoState, split: SplitPlans, before: PolicyContext, *, is_refined: bool) -> AutoState:
    """Estimates and trust are of predictions; the credit is owed whatever is predicted."""
    guard = split.adopted(state.estimates.guard, before, is_refined=is_refined)
    if is_refined:
        return replace(state, estimates=replace(state.estimates, guard=guard))
    return AutoState(estimates=StepEstimates(guard=guard), queue=state.queue)
