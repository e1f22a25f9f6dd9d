"""Decisions: why of late, the newest one by one, and how many of each kind in a time that is over."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pdmuxd.controlplane.events.messages import DecisionEvent
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.reading import DecisionSummary
from pdmuxd.controlplane.telemetry.decisions import SeenDecision, decision_event, newest
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.past import decided
from pdmuxd.controlplane.web.tables import (
    Column,
    CsvName,
    Link,
    Table,
    count,
    ms,
    of_ms_in_s,
    ratio,
    share,
    when,
)
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown
from pdmuxd.engine.core.types import Reason
from pdmuxd.tui.show.words import REASONS, moved_by

ROWS = 100
LOOKED_AT = 5000
"""Decisions of which runs are made: about a minute's."""
LAST_S = 10.0
"""Of which the shares of reasons are told, as in the console."""

ReasonName = Annotated[Reason | Literal[""], Query(description="Only decisions with this reason.")]


def runs(found: Sequence[SeenDecision]) -> Sequence[DecisionEvent]:
    """Decisions alike that followed each other as one; `found` and the answer are newest first."""
    alike = (list(run) for _, run in groupby(found, key=lambda seen: seen.kind))
    return [decision_event(run[::-1]) for run in islice(alike, ROWS)]


def decision_routes(telemetry: Telemetry, history: History) -> APIRouter:
    """`/ui/decisions`."""
    router = page_router()

    @router.get("/decisions")
    async def list_decisions(
        request: Request,
        reason: ReasonName = "",
        at: At = None,
        window: MaybeWindow = None,
        csv: CsvName = "",
    ) -> Response:
        shown = Shown.asked(at, window, time.time(), {"reason": reason})
        if shown.is_all:
            return await asyncio.to_thread(show, request, shown, reason, csv)
        found = [one for one in await decided(history, shown) if reason in ("", one.reason)]
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            title="Decisions",
            heading="Decisions by reason",
            shown=shown,
            tables=(_summed(found),),
        )

    def show(request: Request, shown: Shown, reason: str, csv: str) -> Response:
        kept, now_s = telemetry.decisions.snapshot(), telemetry.clock()

        def is_wanted(seen: SeenDecision) -> bool:
            return not reason or seen.record.reason == reason

        late = [seen for seen in kept if now_s - seen.at_s <= LAST_S]
        counted = Counter(str(seen.record.reason) for seen in late).most_common()
        of = f"Only those where {REASONS.get(reason, reason)}." if reason else ""
        return sheet(
            request,
            csv,
            title="Decisions",
            heading=f"{telemetry.decisions.total:,} decisions since the daemon started",
            lines=(of,),
            shown=shown,
            tables=(
                _shares([(name, number, number / len(late)) for name, number in counted]),
                _newest(runs(newest(kept, is_wanted, LOOKED_AT))),
            ),
        )

    return router


def _words(reason: str) -> str:
    return REASONS.get(reason, reason)


def _reason(name: str) -> Link:
    return Link(name, f"/ui/decisions?reason={name}")


def _shares(counted: Sequence[tuple[str, int, float]]) -> Table:
    return Table(
        name="shares",
        title="Why",
        note=f"last {LAST_S:.0f} s",
        columns=(
            Column("reason", "Reason", _words, "long"),
            share("share", "Share"),
            count("count", "Decisions"),
        ),
        rows=[(_reason(name), part, number) for name, number, part in counted],
        empty="Nothing was decided.",
    )


def _newest(found: Sequence[DecisionEvent]) -> Table:
    return Table(
        name="decisions",
        title="The newest",
        note="those alike that followed each other in one row, with the last one's numbers",
        columns=(
            when("at", "At"),
            count("count", "Times"),
            Column("mode", "Mode"),
            count("prefill_sms", "Prefill SMs"),
            count("decode_sms", "Decode SMs"),
            Column("reason", "Why", _words, "long"),
            Column("moved_by", "Because it was learned", kind="long"),
            count("sitting_out", "Sit out"),
            count("decode_bs", "Decode batch"),
            count("prefill_new_tokens", "Prompt tokens"),
            ms("predicted_ms", "Predicted, ms"),
            ratio("guard_ratio", "Guard"),
            ms("measured_ms", "Took, ms"),
            ms("slack_min_ms", "Least slack, ms"),
        ),
        rows=[
            (
                one.at,
                one.count,
                one.mode,
                one.prefill_sms,
                one.decode_sms,
                one.reason,
                moved_by(one),
                one.sitting_out,
                one.decode_bs,
                one.prefill_new_tokens,
                one.predicted_ms,
                one.guard_ratio,
                one.measured_ms,
                one.slack_min_ms,
            )
            for one in found
        ],
        empty="There is none.",
    )


def _summed(found: Sequence[DecisionSummary]) -> Table:
    sums: dict[tuple[str, str], list[int]] = {}
    for one in found:
        kind = sums.setdefault((one.mode, one.reason), [0, 0, 0])
        for index, value in enumerate((one.count, one.time_ms, one.prefill_tokens)):
            kind[index] += value
    total_ms = sum(time_ms for _, time_ms, _ in sums.values())
    return Table(
        name="kinds",
        title="By reason",
        note="most time first",
        columns=(
            Column("reason", "Reason", _words, "long"),
            Column("mode", "Mode"),
            share("time_ratio", "Share of their time"),
            of_ms_in_s("time_ms", "Time, s"),
            count("count", "Decisions"),
            count("prefill_tokens", "Prompt tokens"),
        ),
        rows=[
            (reason, mode, time_ms / total_ms if total_ms else None, time_ms, number, tokens)
            for (mode, reason), (number, time_ms, tokens) in sorted(
                sums.items(), key=lambda item: -item[1][1]
            )
        ],
        empty="Nothing is known of this time.",
    )
