"""Which target a request missed, by how much, and why, as far as the records of engine and gateway tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pdmuxd.controlplane.events.outcomes import UNSERVED, Outcome
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.decisions import SeenDecision
from pdmuxd.controlplane.telemetry.judged import (
    MET_TOLERANCE_S,
    Delivered,
    e2e_missed,
    tbt_missed,
    ttft_missed,
)
from pdmuxd.engine.core.types import Mode, Reason
from pdmuxd.engine.link.messages import RequestRecord


class Cause(StrEnum):
    """Why a target was missed."""

    QUEUED = "queued"
    PREFILL_SLOW = "prefill_slow"
    RETRACTED = "retracted"
    NO_SPLIT_MEETS_TARGET = "no_split_meets_target"
    SLOWER_THAN_PREDICTED = "slower_than_predicted"
    PREFILL_BETWEEN_TOKENS = "prefill_between_tokens"
    ANSWER_LONG = "answer_long"
    """Of a whole answer: most of its time went by between its tokens."""
    HOST_LATE = "host_late"
    """The engine made it in time, the client got it late."""
    LOOP_LATE = "loop_late"
    """It would have been in time, had the daemon read the request when it came."""
    LIMITED = "limited"
    """Refused by a limit of its tenant or key. This, the next three and `failed`: it was not served."""
    REFUSED = "refused"
    EXPIRED = "expired"
    ENGINE_LOST = "engine_lost"
    ENGINE_SILENT = "engine_silent"
    """It would have been in time, had the engine not stood still."""
    FAILED = "failed"
    UNKNOWN = "unknown"


_REFUSED = {
    "max_wait": "refused, since it had waited for as long as it may (max_wait)",
    "deadline_unreachable": "refused, since its first token would have come too late (deadline_unreachable)",
}
"""The engine's word on why it ended a request that it had not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitInForce:
    """How the SMs were used in most of the decisions to blame."""

    mode: str
    prefill_sms: int
    decode_sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SloViolation:
    """One missed target."""

    target: str
    """`ttft`, `tbt`, `e2e` (whole answers) or `availability`."""
    by_s: float
    """How far above the target; of availability, how long the client had waited when it was told."""
    cause: Cause
    text: str
    split: SplitInForce | None = None
    """None where no decision is to blame, or none is kept."""


def find_violations(
    record: RequestRecord, prefilling: Sequence[SeenDecision], decoding: Sequence[SeenDecision]
) -> tuple[SloViolation, ...]:
    """The targets that a request missed in the engine.

    `prefilling` are the decisions between the begin of its prefill and its first token, `decoding` those
    between its first and last token.
    """
    found = []
    if ttft_missed(record) and record.ttft_s is not None:
        found.append(_ttft(record, record.ttft_s, prefilling))
    if tbt_missed(record) and record.tbt_max_s is not None:
        found.append(_tbt(record, record.tbt_max_s, decoding))
    if e2e_missed(record) and record.e2e_s is not None and record.e2e_target_s is not None:
        found.append(_e2e(record, record.e2e_s, record.e2e_target_s))
    return tuple(found)


def find_late_delivery(
    record: RequestRecord, delivered: Delivered | None, found: Iterable[SloViolation]
) -> tuple[SloViolation, ...]:
    """The targets that the engine met, so that they are not among `found`, and the client saw missed.

    The host cannot be late with what the engine never made: requests without a token are `find_unserved`'s.
    """
    if delivered is None or delivered.ttft_s is None:
        return ()
    known, late = {violation.target for violation in found}, []
    if (
        "ttft" not in known
        and record.ttft_s is not None
        and delivered.ttft_s > record.ttft_target_s + MET_TOLERANCE_S
    ):
        made = f"made after {_shown(record.ttft_s)}"
        text = f"{made}, delivered after {_shown(delivered.ttft_s)}, allowed {_shown(record.ttft_target_s)}"
        by_s, cause = delivered.ttft_s - record.ttft_target_s, Cause.HOST_LATE
        if delivered.read_late_s >= by_s:
            cause, text = Cause.LOOP_LATE, f"read {_shown(delivered.read_late_s)} after it came, {text}"
        late.append(SloViolation(target="ttft", by_s=by_s, cause=cause, text=text))
    if "tbt" not in known and delivered.gaps_missed:
        by_s = delivered.gap_max_s - record.tbt_target_s
        text = f"{_head(delivered.gaps_missed, record.tbt_gaps, by_s)}: made in time, delivered late"
        late.append(SloViolation(target="tbt", by_s=by_s, cause=Cause.HOST_LATE, text=text))
    whole_s, target_s = delivered.e2e_s, record.e2e_target_s
    if "e2e" not in known and whole_s is not None and target_s is not None and e2e_missed(record, delivered):
        text = f"whole after {_shown(record.e2e_s or 0.0)}, delivered after {_shown(whole_s)}"
        text = f"{text}, allowed {_shown(target_s)}"
        late.append(SloViolation(target="e2e", by_s=whole_s - target_s, cause=Cause.HOST_LATE, text=text))
    return tuple(late)


_MAY_BE_STILL = frozenset(
    {
        Cause.QUEUED,
        Cause.PREFILL_SLOW,
        Cause.SLOWER_THAN_PREDICTED,
        Cause.PREFILL_BETWEEN_TOKENS,
        Cause.HOST_LATE,  # what a process made before it was stopped comes when it goes on
        Cause.UNKNOWN,
    }
)
_MOSTLY = 0.8
"""Of the delay, so that what is heard a heartbeat later is not missed."""


def find_silence(
    found: Iterable[SloViolation],
    silent_s: Callable[[float, float], float],
    *,
    arrived_s: float,
    first_s: float | None,
    ended_s: float,
) -> tuple[SloViolation, ...]:
    """The same, but for those that an engine that stood still explains: it was silent for as long as they
    were late. `silent_s` says for how long, between two instants."""
    told = []
    for each in found:
        if each.cause in _MAY_BE_STILL:
            is_ttft = each.target == "ttft" or first_s is None
            first_s = arrived_s if each.target == "e2e" else first_s
            start_s, end_s = (arrived_s, first_s or ended_s) if is_ttft else (first_s or arrived_s, ended_s)
            still_s = silent_s(start_s, end_s)
            if still_s > 0.0 and still_s >= _MOSTLY * each.by_s:
                text = f"{each.text}; the engine stood still for {_shown(still_s)} of that"
                each = replace(each, cause=Cause.ENGINE_SILENT, text=text, split=None)
        told.append(each)
    return tuple(told)


def find_unserved(
    record: RequestRecord, waited_s: float, found: Iterable[SloViolation]
) -> tuple[SloViolation, ...]:
    """The TTFT target of a request that ended without a token, after it had waited for longer than that.

    Why is said only where the engine's record tells: it refused the request while that waited in its queue,
    or never began its prefill.
    """
    by_s = waited_s - record.ttft_target_s
    if record.ttft_s is not None or by_s <= MET_TOLERANCE_S or any(each.target == "ttft" for each in found):
        return ()
    allowed = f"allowed {_shown(record.ttft_target_s)}"
    if record.outcome == "refused":
        why = _REFUSED.get(record.cause, "the engine refused it")
        cause, text = Cause.QUEUED, f"waited {_shown(waited_s)} in the engine's queue, {allowed}: {why}"
    elif record.queue_s is None:
        text = f"{record.outcome} after {_shown(waited_s)}, {allowed}: its prefill had not begun"
        cause = Cause.QUEUED
    else:
        text = (
            f"{record.outcome} after {_shown(waited_s)}, {allowed}: its prefill had begun after "
            f"{_shown(record.queue_s)} and was not done; not explained"
        )
        cause = Cause.UNKNOWN
    return (SloViolation(target="ttft", by_s=by_s, cause=cause, text=text),)


def find_not_served(
    outcome: Outcome, *, error: str, waited_s: float, has_begun: bool
) -> tuple[SloViolation, ...]:
    """That a request was not served, and what it was told; `has_begun`: its client had a part of it."""
    if outcome not in UNSERVED:
        return ()
    code = f" ({error})" if error else ""
    match outcome:
        case Outcome.LIMITED:
            cause, text = Cause.LIMITED, f"refused by a limit of its tenant or key{code}"
        case Outcome.EXPIRED:
            cause, text = Cause.EXPIRED, f"ended after {_shown(waited_s)} without an answer{code}"
        case Outcome.LOST:
            when = "in the middle of its answer" if has_begun else "before its first token"
            cause, text = Cause.ENGINE_LOST, f"the engine was lost {when}{code}"
        case Outcome.REFUSED:
            cause, text = Cause.REFUSED, f"refused by the node{code}"
        case _:
            cause, text = Cause.FAILED, f"ended in an error{code}"
    return (SloViolation(target="availability", by_s=waited_s, cause=cause, text=text),)


def is_prefill_slow(record: RequestRecord) -> bool:
    """Whether its first token was late and the prefill took most of that time."""
    if record.ttft_s is None or record.retractions or not ttft_missed(record):
        return False
    return (record.queue_s or 0.0) < record.ttft_s / 2


def _ttft(record: RequestRecord, ttft_s: float, prefilling: Sequence[SeenDecision]) -> SloViolation:
    queue_s = record.queue_s or 0.0
    prefill_s = ttft_s - queue_s
    how = f"waited {_shown(queue_s)}, prefilled {_shown(prefill_s)}, allowed {_shown(record.ttft_target_s)}"
    if record.retractions:
        cause, how = Cause.RETRACTED, f"{how}; sent back to wait {record.retractions} times for want of KV"
    else:
        cause = Cause.PREFILL_SLOW if is_prefill_slow(record) else Cause.QUEUED
    split = _mostly(prefilling) if cause is Cause.PREFILL_SLOW else None
    by_s = ttft_s - record.ttft_target_s
    return SloViolation(target="ttft", by_s=by_s, cause=cause, text=how, split=split)


def _e2e(record: RequestRecord, e2e_s: float, target_s: float) -> SloViolation:
    """Name what took most of its time: the queue, its prefill, or its tokens."""
    queue_s, ttft_s = record.queue_s or 0.0, record.ttft_s or 0.0
    parts = {
        Cause.QUEUED: queue_s,
        Cause.PREFILL_SLOW: ttft_s - queue_s,
        Cause.ANSWER_LONG: e2e_s - ttft_s,
    }
    text = (
        f"whole after {_shown(e2e_s)}, allowed {_shown(target_s)}: waited {_shown(queue_s)}, prefilled "
        f"{_shown(ttft_s - queue_s)}, {record.output_tokens} tokens in {_shown(e2e_s - ttft_s)}"
    )
    cause = Cause.RETRACTED if record.retractions else max(parts, key=lambda each: parts[each])
    return SloViolation(target="e2e", by_s=e2e_s - target_s, cause=cause, text=text)


def _tbt(record: RequestRecord, tbt_max_s: float, decoding: Sequence[SeenDecision]) -> SloViolation:
    target_s = record.tbt_target_s
    head = _head(record.tbt_gaps - record.tbt_gaps_met, record.tbt_gaps, tbt_max_s - target_s)
    cause, why, blamed = _tbt_cause(record, decoding)
    return SloViolation(
        target="tbt",
        by_s=tbt_max_s - target_s,
        cause=cause,
        text=f"{head}: {why}",
        split=_mostly(blamed),
    )


def _tbt_cause(
    record: RequestRecord, decoding: Sequence[SeenDecision]
) -> tuple[Cause, str, Sequence[SeenDecision]]:
    """The cause, in words, and the decisions that are to blame."""
    if record.retractions:
        return Cause.RETRACTED, f"sent back to wait {record.retractions} times for want of KV", ()
    target_s = record.tbt_target_s
    if infeasible := [seen for seen in decoding if _is_infeasible(seen)]:
        why = f"no split met the target in {len(infeasible)} decisions"
        return Cause.NO_SPLIT_MEETS_TARGET, why, infeasible
    between = [
        seen for seen in decoding if not seen.record.decode_bs and seen.record.measured_step_s > target_s
    ]
    if between:
        why = f"prefill ran alone between tokens {len(between)} times"
        return Cause.PREFILL_BETWEEN_TOKENS, why, between
    if over := [seen for seen in decoding if _is_over_bound(seen) and seen.measured_s > target_s]:
        return Cause.SLOWER_THAN_PREDICTED, f"{len(over)} steps took longer than predicted", over
    return Cause.UNKNOWN, "not explained: the decisions that are kept do not tell why", decoding


def _mostly(blamed: Iterable[SeenDecision]) -> SplitInForce | None:
    """The split of most of the decisions."""
    counted = Counter(
        (seen.record.mode, seen.record.prefill_sms, seen.record.decode_sms)
        for seen in blamed
        if seen.record.mode != Mode.IDLE
    )
    if not counted:
        return None
    (mode, prefill_sms, decode_sms), _ = counted.most_common(1)[0]
    return SplitInForce(mode=mode, prefill_sms=prefill_sms, decode_sms=decode_sms)


def _is_infeasible(seen: SeenDecision) -> bool:
    slack_s = seen.record.tbt_slack_s
    return seen.record.reason == Reason.TBT_INFEASIBLE or (slack_s is not None and slack_s < 0.0)


def _is_over_bound(seen: SeenDecision) -> bool:
    predicted_s = seen.predicted_s
    return predicted_s is not None and seen.measured_s > predicted_s * (seen.record.guard_ratio or 1.0)


def _head(late: int, gaps: int, by_s: float) -> str:
    were = "gap was" if late == 1 else "gaps were"
    return f"{late} of {gaps} {were} too long, the longest by {_shown(by_s)}"


def _shown(seconds: float) -> str:
    return f"{to_ms(seconds):.3g} ms" if seconds < 1.0 else f"{seconds:.2f} s"
