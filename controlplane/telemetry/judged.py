"""One request against its targets: as its client saw it where the gateway could see that, else as made.

The engine knows when it made each token. When the host is late, a client sees something else: what the
gateway wrote, and when. A tenant's attainment is of the latter; the engine's own is kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.controlplane.events.outcomes import Outcome
from pdmuxd.engine.link.durations import Counts
from pdmuxd.engine.link.messages import RequestRecord

MET_TOLERANCE_S = 1e-9
"""Sums of step times may exceed a target by rounding alone."""
_GOOD_GAPS_RATIO = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What the gateway wrote of one streamed answer with a single choice."""

    ttft_s: float | None
    """From the arrival of its body, by the kernel, to the first byte; None if there was none."""
    read_late_s: float = 0.0
    """Of that, until the gateway had read the body: its event loop was busy."""
    gaps_missed: int = 0
    """Longer than the TBT target when the request came."""
    missed_ago_s: float = 0.0
    """How long before the end of the answer the last of these ended."""
    gap_max_s: float = 0.0
    gap_counts: Counts = ()
    e2e_s: float | None = None
    """From the arrival of its body to the last write; None: as the engine has it."""
    is_direct: bool = False
    """Whether its tokens came straight from the engine's scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRequest:
    """A request that ended. What is missed is None, or 0 of 0, where there was nothing to judge."""

    record: RequestRecord
    ttft_s: float | None
    ttft_missed: bool | None
    gaps: int
    gaps_missed: int
    gap_max_s: float | None
    gap_counts: Counts
    good: bool
    """As its client saw it."""
    good_by_steps: bool = False
    """As the engine made it."""
    good_forgiven: bool = False
    """As its client saw it, with one late gap forgiven: 99% of fewer than 101 gaps are all of them."""
    e2e_missed: bool | None = None
    """Of its whole answer; None where that had no target, or did not come to its end."""
    is_delivered: bool = False
    """Whether the gateway saw each write: else times are the engine's."""
    is_direct: bool = False
    """Whether its tokens came straight from the engine's scheduler; False also where that is not known."""
    outcome: Outcome | None = None
    """How it ended; None if that was counted when the gateway answered."""


def ttft_missed(record: RequestRecord) -> bool | None:
    """Whether the first token was made late; None if there was none."""
    return None if record.ttft_s is None else record.ttft_s > record.ttft_target_s + MET_TOLERANCE_S


def tbt_missed(record: RequestRecord) -> bool | None:
    """Whether any gap was too long; None if there was no gap."""
    return None if record.tbt_max_s is None else record.tbt_gaps_met < record.tbt_gaps


def e2e_missed(
    record: RequestRecord, delivered: Delivered | None = None, waited_s: float = 0.0
) -> bool | None:
    """Whether the whole answer came late; without an end, if its client `waited_s` longer than the target.
    None if it had no target, or may have been in time."""
    if record.e2e_target_s is None:
        return None
    if record.outcome == "finished" and record.e2e_s is not None:
        seen_s = record.e2e_s if delivered is None or delivered.e2e_s is None else delivered.e2e_s
        return seen_s > record.e2e_target_s + MET_TOLERANCE_S
    return True if waited_s > record.e2e_target_s else None


def is_good(record: RequestRecord) -> bool:
    """Whether it finished with its TTFT, the p99 of its gaps and its whole answer in time: what a replay
    calls good, too."""
    tbt_p99_s = record.tbt_p99_s or 0.0
    return (
        record.outcome == "finished"
        and ttft_missed(record) is False
        and tbt_p99_s <= record.tbt_target_s + MET_TOLERANCE_S
        and not e2e_missed(record)
    )


def judge(
    record: RequestRecord,
    delivered: Delivered | None = None,
    *,
    waited_s: float = 0.0,
    outcome: Outcome | None = None,
) -> JudgedRequest:
    """Judge a request; without a first token it missed its target if it `waited_s` longer than that."""
    if delivered is None or delivered.ttft_s is None:
        missed = ttft_missed(record)
        if missed is None and waited_s > record.ttft_target_s:
            missed = True
        late_whole = e2e_missed(record, waited_s=waited_s)
        return JudgedRequest(
            record=record,
            ttft_s=record.ttft_s,
            ttft_missed=missed,
            gaps=record.tbt_gaps,
            gaps_missed=record.tbt_gaps - record.tbt_gaps_met,
            gap_max_s=record.tbt_max_s,
            gap_counts=record.tbt_counts,
            good=is_good(record),
            good_by_steps=is_good(record),
            good_forgiven=is_good(record)
            or _is_good_with(
                record,
                record.tbt_gaps - record.tbt_gaps_met - 1,
                late=missed is not False or late_whole,
            ),
            e2e_missed=late_whole,
            outcome=outcome,
        )
    missed = delivered.ttft_s > record.ttft_target_s + MET_TOLERANCE_S
    # Of several tokens in one write all but the first came with no gap at all.
    gaps_missed = min(delivered.gaps_missed, record.tbt_gaps)
    seen = sum(count for _, count in delivered.gap_counts)
    together = max(0, record.tbt_gaps - seen)
    late_whole = e2e_missed(record, delivered, waited_s)
    return JudgedRequest(
        record=record,
        ttft_s=delivered.ttft_s,
        ttft_missed=missed,
        gaps=record.tbt_gaps,
        gaps_missed=gaps_missed,
        gap_max_s=delivered.gap_max_s if record.tbt_gaps else None,
        gap_counts=(*delivered.gap_counts, (0, together)) if together else delivered.gap_counts,
        good=_is_good_with(record, gaps_missed, late=missed or late_whole),
        good_by_steps=is_good(record),
        good_forgiven=_is_good_with(record, gaps_missed - 1, late=missed or late_whole),
        e2e_missed=late_whole,
        is_delivered=True,
        is_direct=delivered.is_direct,
        outcome=outcome,
    )


def _is_good_with(record: RequestRecord, gaps_missed: int, *, late: bool | None) -> bool:
    """Whether it finished, was not `late`, and missed no more of its gaps than a good answer may."""
    return (
        record.outcome == "finished"
        and not late
        and gaps_missed <= (1.0 - _GOOD_GAPS_RATIO) * record.tbt_gaps
    )
