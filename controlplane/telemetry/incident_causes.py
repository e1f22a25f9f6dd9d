"""The likely cause of an incident, with what was seen of it, and the command that would help."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from pdmuxd.controlplane.telemetry.prompt_work import Ahead
from pdmuxd.controlplane.telemetry.slo_violations import Cause
from pdmuxd.tui.show.words import cause_in_words

NAMED_RATIO = 0.5
"""A cause is named if it explains so much of what was missed."""
_IN_A_QUEUE = frozenset({Cause.QUEUED, Cause.EXPIRED})
_COMMANDS = {
    Cause.PREFILL_SLOW: "pdmuxd slo cost",
    Cause.ANSWER_LONG: "pdmuxd slo show {tenant}",
    Cause.NO_SPLIT_MEETS_TARGET: "pdmuxd slo preview {tenant}",
    Cause.SLOWER_THAN_PREDICTED: "pdmuxd profile run",
    Cause.PREFILL_BETWEEN_TOKENS: "pdmuxd policy set auto",
    Cause.HOST_LATE: "pdmuxd doctor",
    Cause.LOOP_LATE: "pdmuxd doctor",
    Cause.LIMITED: "pdmuxd limit show {tenant}",
    Cause.REFUSED: "pdmuxd status",
    Cause.ENGINE_LOST: "pdmuxd engine quarantine",
    Cause.ENGINE_SILENT: "pdmuxd status",
    Cause.FAILED: "pdmuxd support-bundle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why a tenant's requests were missed."""

    cause: Cause
    ratio: float | None
    text: str
    behind: str | None = None
    command: str | None = None
    concurrency: int | None = None
    """To which the command limits `behind`."""


def explain(
    tenant: str, causes: Counter[Cause], *, late_now: int, ahead: Ahead | None, in_flight_ahead: int
) -> Explained:
    """What explains most of the misses, and of those that wait late now; `unknown` if nothing does.

    `ahead` fills the queue, with `in_flight_ahead` requests.
    """
    counted = causes + Counter({Cause.QUEUED: late_now})
    total = counted.total()
    # Who waited until it might no longer had waited in the queue, too.
    queued = sum(counted[each] for each in _IN_A_QUEUE)
    if queued >= NAMED_RATIO * total and total:
        return _queued(tenant, queued / total if causes else None, ahead, in_flight_ahead)
    lost, refused = counted[Cause.ENGINE_LOST], counted[Cause.REFUSED]
    if lost and lost + refused >= NAMED_RATIO * total:
        # An engine that ends takes what it had, and until the next one serves the others are refused.
        text = f"{cause_in_words(Cause.ENGINE_LOST)} ({lost} of {total} misses)"
        if refused:
            text = f"{text}; {refused} were refused for want of an engine or of a place"
        return Explained(
            cause=Cause.ENGINE_LOST,
            ratio=(lost + refused) / total,
            text=text,
            command=_COMMANDS[Cause.ENGINE_LOST],
        )
    first, count = max(counted.items(), key=lambda each: (each[1], each[0]), default=(Cause.UNKNOWN, 0))
    if not total or first is Cause.UNKNOWN or count < NAMED_RATIO * total:
        known = [
            f"{each} of {total} {cause_in_words(cause)}"
            for cause, each in counted.most_common(3)
            if cause is not Cause.UNKNOWN
        ]
        text = "not explained" + (f": {', '.join(known)}" if known else "")
        return Explained(cause=Cause.UNKNOWN, ratio=None, text=text)
    command = _COMMANDS.get(first)
    return Explained(
        cause=first,
        ratio=count / total,
        text=f"{cause_in_words(first)} ({count} of {total} misses)",
        command=None if command is None else command.format(tenant=tenant),
    )


def _queued(tenant: str, ratio: float | None, ahead: Ahead | None, in_flight_ahead: int) -> Explained:
    if ahead is None:
        text = "queued; no tenant has a large part of the prompts before it"
        return Explained(cause=Cause.QUEUED, ratio=ratio, text=text)
    seen = f"{ahead.share_ratio:.0%} of the prompt tokens"
    if ahead.grown is not None and ahead.grown >= 1.5:
        seen = f"{seen}, {ahead.grown:.1f} times as many as before"
    if ahead.tenant == tenant:
        return Explained(
            cause=Cause.QUEUED,
            ratio=ratio,
            text=f"queued behind its own requests, more than the GPU serves: {seen}",
            behind=tenant,
        )
    least = max(1, in_flight_ahead // 2)
    return Explained(
        cause=Cause.QUEUED,
        ratio=ratio,
        text=f"queued behind {ahead.tenant}: {seen}",
        behind=ahead.tenant,
        command=_limit(ahead.tenant, least),
        concurrency=least,
    )


def limited_to(explained: Explained, concurrency: int) -> Explained:
    """Add a command that limits to so many."""
    command = _limit(explained.behind or "", concurrency)
    return replace(explained, command=command, concurrency=concurrency)


def _limit(tenant: str, concurrency: int) -> str:
    return f"pdmuxd limit set {tenant} concurrency={concurrency}:wait"


def steady(before: Explained | None, found: Explained) -> Explained:
    """`found` with the command of `before`, unless that limits another, or to over twice as many: one that
    changes with each request in flight can neither be predicted nor typed."""
    if before is None or before.concurrency is None or found.concurrency is None:
        return found
    # One that is far less was found to be needed.
    if before.behind != found.behind or before.concurrency > 2 * found.concurrency:
        return found
    return replace(found, command=before.command, concurrency=before.concurrency)
