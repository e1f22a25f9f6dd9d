"""What is kept of a page's subject for a time that is over: what happened, was decided and was learned."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.batch import NODE, MarkKind
from pdmuxd.controlplane.history.columns import Column as Count
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.periods import DAY_S, HOUR_S, MINUTE_S, Segment
from pdmuxd.controlplane.history.reading import DecisionSummary
from pdmuxd.controlplane.profiles.values import RecordedChange
from pdmuxd.controlplane.web.tables import Column, Table, count, long, of_ms_in_s, ratio, share, when, yes_no
from pdmuxd.controlplane.web.times import Shown

ROWS = 100
MODES = {"split": "side by side", "fused": "one batch", "decode": "decode alone", "prefill": "prefill alone"}
LEARNED = "What was learned, and why"
CHANGED = (
    Column("kind", "What"),
    Column("subject", "Of"),
    ratio("before", "Before"),
    ratio("after", "After"),
    yes_no("at_bound", "Measure again"),
    long("evidence", "Evidence"),
)


async def decided(history: History, shown: Shown) -> list[DecisionSummary]:
    """How many decisions of each kind were taken in each minute, hour or day. Raises: StoreError."""
    step_s = next(step for step in (DAY_S, HOUR_S, MINUTE_S) if shown.minutes.step_s >= step)
    start_s, end_s = shown.minutes.start_s, shown.minutes.end_s
    segment = Segment(
        step_s=step_s, start_s=int(start_s // step_s * step_s), end_s=int(-(-end_s // step_s) * step_s)
    )
    return [one for _, one in await history.decisions(segment)]


async def happened(history: History, shown: Shown, *kinds: MarkKind) -> Table:
    """The marks of these kinds, newest first. Raises: StoreError."""
    await history.flush()
    marks = await history.marks(shown.minutes, tenant=None, since_ms=0)
    return Table(
        name="happened",
        title="What happened",
        note=f"newest first, at most {ROWS}",
        columns=(when("at", "When"), Column("kind", "Of"), Column("tenant", "Tenant"), long("text", "What")),
        rows=[
            (instant(mark.at_s), mark.kind, mark.tenant, mark.text)
            for mark in reversed(marks)
            if mark.kind in kinds
        ][:ROWS],
        empty="Nothing happened in this time.",
    )


def modes(found: Sequence[DecisionSummary]) -> Table:
    """How long the SMs were split, and how long one batch or decode had them all."""
    sums: dict[str, list[int]] = {}
    for one in found:
        kept = sums.setdefault(one.mode, [0, 0, 0])
        for index, value in enumerate((one.time_ms, one.count, one.prefill_tokens)):
            kept[index] += value
    total_ms = sum(time_ms for time_ms, _, _ in sums.values())
    return Table(
        name="modes",
        title="How prefill and decode had the SMs",
        note="share of the time of all steps; how long each split was used is not kept",
        columns=(
            Column("mode", "Steps", lambda mode: MODES.get(mode, mode)),
            share("time_ratio", "Share of time"),
            of_ms_in_s("time_ms", "Time, s"),
            count("decisions", "Decisions"),
            count("prefill_tokens", "Prompt tokens"),
        ),
        rows=[
            (mode, time_ms / total_ms if total_ms else None, time_ms, number, tokens)
            for mode, (time_ms, number, tokens) in sorted(sums.items(), key=lambda item: -item[1][0])
        ],
        empty="Nothing was decided in this time.",
    )


async def sm_times(history: History, shown: Shown) -> Table:
    """How busy prefill and decode kept the SMs, by time. Raises: StoreError."""
    points = await history.read(NODE, 0, shown.minutes)
    return Table(
        name="sm_time",
        title="SM time",
        note="newest first; share of all SMs' time",
        columns=(
            when("at", "From"),
            share("prefill_ratio", "Prefill"),
            share("decode_ratio", "Decode"),
            count("in_flight", "In flight, most"),
            count("waiting", "Waiting, most"),
            count("late", "Late, most"),
        ),
        rows=[
            (
                instant(at),
                row[Count.PREFILL_SM_MS] / row[Count.TOTAL_SM_MS] if row[Count.TOTAL_SM_MS] else None,
                row[Count.DECODE_SM_MS] / row[Count.TOTAL_SM_MS] if row[Count.TOTAL_SM_MS] else None,
                row[Count.IN_FLIGHT],
                row[Count.WAITING],
                row[Count.LATE],
            )
            for at, row in reversed(points)
        ],
        empty="Nothing is known of this time.",
    )


def learned(changes: Sequence[tuple[int, RecordedChange]]) -> Table:
    """What serving taught about profiles: bounds of the contention guard, corrections of predictions."""
    return Table(
        name="learned",
        title=LEARNED,
        note=f"newest first, at most {ROWS}; a cell of the guard is decode SMs and four steps",
        columns=(when("created_at", "When"), count("profile_id", "Profile"), *CHANGED),
        rows=[(one.created_at, profile_id, *cells_of(one)) for profile_id, one in changes],
        empty="Nothing was learned in this time.",
    )


def cells_of(one: RecordedChange) -> tuple[object, ...]:
    """Cells of the columns `CHANGED`."""
    return one.kind, one.subject, one.before, one.after, one.at_bound, one.evidence
