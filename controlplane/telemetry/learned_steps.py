"""What the policy in force has learned of measured steps, learned once more from the engine's decisions.

A decision tells what was predicted and measured of its step, of what size, and the margin and the room for a
stall that it was planned with; so what-if can plan as the engine does (docs/decisions/0090).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.engine.core.estimates.steps import FusedEstimate, StepEstimates
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.types import Feedback, Mode, PrefillFeedback
from pdmuxd.engine.link.messages import IterationRecord

LEARNED_FROM = 1024
"""Steps and prefills at 25 us, the newest, where more came since the last question (docs/decisions/0090)."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Up to a decision."""

    seq: int
    estimates: StepEstimates | None = None
    follows_split: bool = False
    told_ratio: float | None = None
    """Of the margin, without what is typical of the step's size, as a decision told it last."""


class LearnedSteps:
    """Learns when it is asked, from what came since. Any thread may ask."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._known = _Known(seq=0)

    def forget(self) -> None:
        """Another engine begins with nothing learned."""
        self._known = _Known(seq=self._decisions.total)

    def estimates(self, context: PolicyContext) -> StepEstimates:
        """What a policy of this context would have learned; its guard and its trust in predictions are those
        that it begins with."""
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
        found = known.estimates or start
        fused = found.fused
        if known.told_ratio is not None:
            fused = replace(fused, margin=fused.margin.with_ratio(known.told_ratio))
        return replace(found, fused=fused, guard=start.guard, breaker=start.breaker)


def _after(
    known: _Known, records: Iterable[IterationRecord], start: StepEstimates, context: PolicyContext
) -> _Known:
    """What is known after these, oldest first."""
    estimates, follows_split, told_ratio = known.estimates or start, known.follows_split, known.told_ratio
    for record in records:
        if not record.decode_steps:
            ratio = context.latency.colocated_ratio(record.prefill_sms)
            estimates = estimates.after_prefill(_of_prefill(record), ratio)
            continue
        if (found := _of_step(record, follows_split=follows_split)) is not None:
            estimates = estimates.after(found, record.decode_sms, uses_guard=True)
        follows_split = record.mode == Mode.SPLIT
        if record.stall_room_s:
            # The guard that tells stalls from contention was another one when the step was measured.
            estimates = _expecting(estimates, record.stall_room_s)
        if record.margin_ratio is not None:
            told_ratio = record.margin_ratio / estimates.fused.sizes.ratio(_tokens(record))
    return _Known(known.seq, estimates, follows_split, told_ratio)


def _expecting(estimates: StepEstimates, stall_s: float) -> StepEstimates:
    margin = estimates.fused.margin.expecting(stall_s)
    fused: FusedEstimate = replace(estimates.fused, margin=margin)
    return replace(estimates, fused=fused)


def _tokens(record: IterationRecord) -> int:
    return record.prefill_new_tokens + record.decode_bs


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
