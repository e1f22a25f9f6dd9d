"""What the policy in force has learned of measured steps, learned once more from the engine's decisions.

A decision tells what was predicted and measured of its step, of what size, and the margin and the room for a
stall that it was planned with; so what-if can plan as the engine does (docs/decisions/0090 and 0095).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.engine.core.estimates.misprediction_breaker import CLOSE_AT, OPEN_AT, MispredictionBreaker
from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.types import Feedback, Mode, PrefillFeedback, Reason
from pdmuxd.engine.link.messages import IterationRecord

LEARNED_FROM = 1024
"""Steps and prefills at 25 us, the newest, where more came since the last question (docs/decisions/0090)."""
_ROUNDED = 1e-6
"""By less a factor that a decision told differs only since it was told as a ratio."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Up to a decision."""

    seq: int
    estimates: StepEstimates | None = None
    before: StepEstimates | None = None
    """Without the last step: the next one's decision was made while that ran."""
    follows_split: bool = False


class LearnedSteps:
    """Learns when it is asked, from what came since. Any thread may ask."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._known = _Known(seq=0)

    def forget(self) -> None:
        """Another engine begins with nothing learned."""
        self._known = _Known(seq=self._decisions.total)

    def estimates(self, context: PolicyContext) -> StepEstimates:
        """What a policy of this context would have learned, whether it trusts predictions among it; its guard
        is the one that it begins with."""
        before, left, records = self._known, LEARNED_FROM, list[IterationRecord]()
        start = StepEstimates(guard=context.guard)
        known, seq = before, before.seq
        for seen in reversed(self._decisions.snapshot()):
            if seen.seq <= before.seq:
                break
            seq = max(seq, seen.seq)
            records.append(seen.record)
            left -= not seen.record.decode_steps or _of_step(seen.record, follows_split=False) is not None
            if not left:
                known = _Known(seq=known.seq)
                break
        if records:
            known = replace(_after(known, reversed(records), start, context), seq=seq)
            if self._known is before:  # another engine may have begun meanwhile
                self._known = known
        return start if known.estimates is None else replace(known.estimates, guard=start.guard)


def _after(
    known: _Known, records: Iterable[IterationRecord], start: StepEstimates, context: PolicyContext
) -> _Known:
    """What is known after these, oldest first."""
    estimates, follows_split = known.estimates or start, known.follows_split
    before = known.before or estimates
    for record in records:
        if not record.decode_steps:
            ratio = context.latency.colocated_ratio(record.prefill_sms)
            estimates = estimates.after_prefill(_of_prefill(record), ratio)
            continue
        estimates = _as_told(estimates, before, record)
        if (found := _of_step(record, follows_split=follows_split)) is not None:
            before = estimates
            estimates = estimates.after(found, record.decode_sms, uses_guard=True)
        follows_split = record.mode == Mode.SPLIT
    return _Known(known.seq, estimates, before, follows_split)


def _as_told(estimates: StepEstimates, before: StepEstimates, record: IterationRecord) -> StepEstimates:
    """The estimates, corrected by what a fused step's decision tells of those that it was made with:
    these, or mostly those of a step before. They differ where not all steps were seen."""
    if record.mode != Mode.FUSED:
        return estimates
    breaker, margin = estimates.breaker, estimates.fused.margin
    is_open = record.reason == Reason.PREDICTIONS_WRONG
    if is_open not in (before.breaker.is_open, breaker.is_open):
        breaker = MispredictionBreaker(wrong_share=OPEN_AT if is_open else CLOSE_AT, is_open=is_open)
    more = _more_than(before, record)
    if abs(more) > _ROUNDED and abs(_more_than(estimates, record)) > _ROUNDED:
        margin = margin.with_ratio(margin.ratio + more * margin.deviation)
    if (record.stall_room_s or 0.0) > before.fused.margin.expected_stall_s:  # never less: the longest counts
        margin = margin.expecting(record.stall_room_s or 0.0)
    if breaker is estimates.breaker and margin is estimates.fused.margin:
        return estimates
    return replace(estimates, breaker=breaker, fused=replace(estimates.fused, margin=margin))


def _more_than(estimates: StepEstimates, record: IterationRecord) -> float:
    """The factor that a decision tells, less that of these estimates; 0 if it tells none."""
    if record.margin_ratio is None:
        return 0.0
    margin = estimates.fused.margin
    told = record.margin_ratio / estimates.fused.sizes.ratio(record.prefill_new_tokens + record.decode_bs)
    return margin.with_ratio(told).factor - margin.factor


def _of_step(record: IterationRecord, *, follows_split: bool) -> Feedback | None:
    """What the engine's policy learned from a step, as `loop.records.feedback` has it."""
    is_fused = record.mode == Mode.FUSED
    predicted_s = record.predicted_fused_s if is_fused else record.predicted_decode_s
    measured_s = record.measured_step_s if is_fused else record.measured_decode_s
    if not record.prefill_new_tokens or not predicted_s or measured_s is None:
        return None
    return Feedback(
        mode=Mode(record.mode),
        partition_id=record.partition_id,
        prefill=record.prefill,
        decode=record.decode,
        predicted_s=predicted_s,
        measured_s=measured_s,
        follows_split=follows_split,
    )


def _of_prefill(record: IterationRecord) -> PrefillFeedback:
    return PrefillFeedback(
        sms=record.prefill_sms,
        was_alone=record.measured_prefill_s is not None,
        predicted_s=record.predicted_prefill_s,
        measured_s=record.measured_step_s,
    )
