"""Which target a request missed, by how much, and why, as far as the engine's records tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.decisions import SeenDecision
from pdmuxd.controlplane.telemetry.judged import tbt_missed, ttft_missed
from pdmuxd.engine.core.types import Reason
from pdmuxd.engine.link.messages import RequestRecord


class Cause(StrEnum):
    """Why a target was missed."""

    QUEUED = "queued"
    PREFILL_SLOW = "prefill_slow"
    RETRACTED = "retracted"
    NO_SPLIT_MEETS_TARGET = "no_split_meets_target"
    SLOWER_THAN_PREDICTED = "slower_than_predicted"
    PREFILL_BETWEEN_TOKENS = "prefill_between_tokens"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SloViolation:
    """One missed target."""

    target: str
    """`ttft` or `tbt`."""
    by_s: float
    cause: Cause
    text: str


def find_violations(record: RequestRecord, decoding: Sequence[SeenDecision]) -> tuple[SloViolation, ...]:
    """The targets that a request missed; `decoding` are the decisions between its first and last token."""
    found = []
    if ttft_missed(record) and record.ttft_s is not None:
        found.append(_ttft(record, record.ttft_s))
    if tbt_missed(record) and record.tbt_max_s is not None:
        found.append(_tbt(record, record.tbt_max_s, decoding))
    return tuple(found)


def _ttft(record: RequestRecord, ttft_s: float) -> SloViolation:
    queue_s = record.queue_s or 0.0
    prefill_s = ttft_s - queue_s
    how = f"waited {_shown(queue_s)}, prefilled {_shown(prefill_s)}, allowed {_shown(record.ttft_target_s)}"
    if record.retractions:
        cause, how = Cause.RETRACTED, f"{how}; sent back to wait {record.retractions} times for want of KV"
    else:
        cause = Cause.QUEUED if queue_s >= prefill_s else Cause.PREFILL_SLOW
    return SloViolation(target="ttft", by_s=ttft_s - record.ttft_target_s, cause=cause, text=how)


def _tbt(record: RequestRecord, tbt_max_s: float, decoding: Sequence[SeenDecision]) -> SloViolation:
    target_s = record.tbt_target_s
    late = record.tbt_gaps - record.tbt_gaps_met
    were = "gap was" if late == 1 else "gaps were"
    head = f"{late} of {record.tbt_gaps} {were} too long, the longest by {_shown(tbt_max_s - target_s)}"
    cause, why = _tbt_cause(record, decoding)
    return SloViolation(target="tbt", by_s=tbt_max_s - target_s, cause=cause, text=f"{head}: {why}")


def _tbt_cause(record: RequestRecord, decoding: Sequence[SeenDecision]) -> tuple[Cause, str]:
    if record.retractions:
        return Cause.RETRACTED, f"sent back to wait {record.retractions} times for want of KV"
    infeasible = sum(_is_infeasible(seen) for seen in decoding)
    if infeasible:
        return Cause.NO_SPLIT_MEETS_TARGET, f"no split met the target in {infeasible} decisions"
    between = sum(
        not seen.record.decode_bs and seen.record.measured_step_s > record.tbt_target_s for seen in decoding
    )
    if between:
        return Cause.PREFILL_BETWEEN_TOKENS, f"prefill ran alone between tokens {between} times"
    over = sum(_is_over_bound(seen) and seen.measured_s > record.tbt_target_s for seen in decoding)
    if over:
        return Cause.SLOWER_THAN_PREDICTED, f"{over} steps took longer than predicted"
    return Cause.UNKNOWN, "the decisions that are kept do not tell why"


def _is_infeasible(seen: SeenDecision) -> bool:
    slack_s = seen.record.tbt_slack_s
    return seen.record.reason == Reason.TBT_INFEASIBLE or (slack_s is not None and slack_s < 0.0)


def _is_over_bound(seen: SeenDecision) -> bool:
    predicted_s = seen.predicted_s
    return predicted_s is not None and seen.measured_s > predicted_s * (seen.record.guard_ratio or 1.0)


def _shown(seconds: float) -> str:
    return f"{to_ms(seconds):.3g} ms" if seconds < 1.0 else f"{seconds:.2f} s"
