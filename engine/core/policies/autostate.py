"""What `auto` remembers, and what steps and prefills that ended change in it.

Sources: MuxWise section 3.4 (the guard); the margins and corrections are this project's own, each beside
its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.latency_margin import LatencyMargin
from pdmuxd.engine.core.misprediction_breaker import WRONG_RATIO, MispredictionBreaker
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.fusedsteps import fused_learned
from pdmuxd.engine.core.policies.layerwise import SplitPlans
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.policies.stalls import split_learned
from pdmuxd.engine.core.queueing import OrderedQueue, QueueState, admitted
from pdmuxd.engine.core.types import Feedback, Mode, Observation, PrefillFeedback, WaitingRequest

CORRECTION_WEIGHT = 0.05
"""Of the newest prefill: about the last 20 count. The first ones count for more, as in a mean."""
STEP_WEIGHT = 0.02
"""Of the newest fused step: about the last 50 count, seconds."""
LOWEST_CORRECTION, HIGHEST_CORRECTION = 0.7, 1.5
SPLIT_STEP_RATIO = 1.2
"""Of decode steps beside layers at first: 1.22 on chat and 1.30 on summaries (emulator with the profile of
partition kernels, Llama-8B on an H200, 2026-11-25)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoState:
    """What `auto` remembers."""

    guard: ContentionGuard
    """How much decode suffers from prefill in a split."""
    queue: QueueState = field(default_factory=QueueState)
    """Credit of those with an unreachable deadline, and the tenants' shares in overload."""
    has_chunk_waited: bool = False
    """Whether the prompt in chunks sat the last step out."""
    breaker: MispredictionBreaker = field(default_factory=MispredictionBreaker)
    latency_margin: LatencyMargin = field(default_factory=LatencyMargin)
    """Of fused steps, beyond what is typical of their size."""
    prefill_correction: float = 1.0
    """Typical over predicted seconds of prefills by layers. It follows what fused steps take, the less the
    more of its own were seen: a device that is slower than its profile is so for both, and what was not tried
    must not look better for it."""
    prefills: int = 0
    """Seen by layers, counted as far as it matters."""
    fused_correction: float = 1.0
    """Typical over predicted seconds of fused steps of all sizes."""
    size_correction: BatchSizeCorrection = field(default_factory=BatchSizeCorrection)
    split_step_ratio: float = SPLIT_STEP_RATIO
    """Typical over predicted seconds of decode steps beside layers, for rates; the guard has the worst."""

    def begun(self, queue: OrderedQueue, batch: Sequence[WaitingRequest], now_s: float) -> AutoState:
        """The state with the prefill of `batch`, taken from `queue`, begun."""
        return replace(self, queue=admitted(queue, batch, now_s))

    def slot_use(self, obs: Observation, requests: Sequence[WaitingRequest]) -> SlotUse | None:
        """What these requests would occupy of the decode slots, if more wait than slots are free."""
        return SlotUse.seen(
            obs,
            requests,
            split_step_ratio=self.split_step_ratio,
            fused_step_ratio=self.size_correction.hoped_level,
        )


def after_step(state: AutoState, feedback: Feedback, split: SplitPlans, *, uses_guard: bool) -> AutoState:
    """The state after a step, as MuxWise has it: a violation raises the guard. Fused steps have a bound of
    their own. Steps that took far longer than predicted cost trust, unless they waited for the host and
    earlier steps did too."""
    predicted_s, measured_s = feedback.predicted_s, feedback.measured_s
    if predicted_s <= 0.0:
        return state
    if feedback.mode is Mode.FUSED:
        predicted_s, latency_margin, size_correction = fused_learned(
            feedback, state.latency_margin, state.size_correction
        )
        took = state if feedback.follows_split else _fused_took(state, feedback)
        state = replace(took, latency_margin=latency_margin, size_correction=size_correction)
    else:
        is_split = feedback.prefill.new_tokens > 0
        instead_s = measured_s if is_split else 0.0
        learnt, margin = feedback, state.latency_margin.without_a_step(instead_s=instead_s)
        if is_split:
            ratio = state.split_step_ratio
            ratio += STEP_WEIGHT * (_within(measured_s / predicted_s) - ratio)
            size_correction = state.size_correction.passed(measured_s)
            state = replace(state, split_step_ratio=ratio, size_correction=size_correction)
        if uses_guard:
            decode_sms = split.table.groups[feedback.partition_id].decode_sms
            bound_s = predicted_s * state.guard.ratio(decode_sms, feedback.prefill, feedback.decode)
            predicted_s = max(predicted_s, bound_s / WRONG_RATIO)  # what the guard foresaw is not wrong
            learnt, margin = split_learned(feedback, state.guard, decode_sms, margin)
        guard = split.learned(learnt, state.guard, for_all=True)
        if guard is not state.guard or margin is not state.latency_margin:
            state = replace(state, guard=guard, latency_margin=margin)
    breaker = state.breaker.after(predicted_s=predicted_s, measured_s=measured_s)
    return state if breaker is state.breaker else replace(state, breaker=breaker)


def after_prefill(state: AutoState, feedback: PrefillFeedback, latency: LatencyModel) -> AutoState:
    """What prefills by layers typically take over their prediction. The same is learned of fused steps, and
    the two are compared."""
    alone_s, sms = feedback.predicted_s or 0.0, feedback.sms
    predicted_s = alone_s * (1.0 if feedback.was_alone else latency.colocated_ratio(sms))
    if predicted_s <= 0.0:
        return state
    weight = max(CORRECTION_WEIGHT, 1.0 / (state.prefills + 2))  # what was assumed counts as one
    seen = _within(feedback.measured_s / predicted_s)
    correction = state.prefill_correction + weight * (seen - state.prefill_correction)
    prefills = state.prefills + (weight > CORRECTION_WEIGHT)
    return replace(state, prefill_correction=correction, prefills=prefills)


def _fused_took(state: AutoState, feedback: Feedback) -> AutoState:
    """The correction of fused steps after one more, and with it those of what runs in splits."""
    before = state.fused_correction
    after = before + STEP_WEIGHT * (_within(feedback.measured_s / feedback.predicted_s) - before)
    follows = (after / before) ** (1.0 / (1 + state.prefills))
    prefill_correction = _within(state.prefill_correction * follows)
    return replace(
        state,
        fused_correction=after,
        prefill_correction=prefill_correction,
        guard=state.guard.on_device(after),
    )


def _within(ratio: float) -> float:
    return min(HIGHEST_CORRECTION, max(LOWEST_CORRECTION, ratio))


def adopted(state: AutoState, split: SplitPlans, before: PolicyContext, *, is_refined: bool) -> AutoState:
    """Margins and trust are of predictions; the credit is owed whatever is predicted."""
    guard = split.adopted(state.guard, before, is_refined=is_refined)
    if is_refined:
        return replace(state, guard=guard)
    return AutoState(guard=guard, queue=state.queue)
