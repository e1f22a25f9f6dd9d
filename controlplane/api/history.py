"""The history over REST: what was served by second, minute, hour or day; decisions and alarms that were."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from pdmuxd.controlplane.api.pages import PAGE_MAX
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.alarms import AlarmStore
from pdmuxd.controlplane.history.batch import NODE
from pdmuxd.controlplane.history.columns import Column, Row
from pdmuxd.controlplane.history.history import MAX_POINTS, History, Period
from pdmuxd.controlplane.history.periods import DAY_S, EARLIEST_S, LATEST_S, MINUTE_S, Segment, stored_step_s
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError

DEFAULT_LENGTH_S = 1800
_ID_MAX = 2**63 - 1
_TO = "The end of the period, not included; now unless given."
_STEP = f"Seconds a point: 1 to 59 for the last half hour, or a multiple of 60. At most {MAX_POINTS} points."

From = Annotated[
    AwareDatetime | None,
    Query(alias="from", description="From this instant on; half an hour before `to` unless given."),
]
To = Annotated[AwareDatetime | None, Query(description=_TO)]
Step = Annotated[int, Query(ge=1, le=31 * DAY_S, description=_STEP)]


class HistoryColumns(BaseModel):
    """A value per instant of `at` in each. Those without another word are counts of that period."""

    arrivals: list[int] = Field(description="Requests that were let in.", examples=[[61, 58]])
    ended: list[int]
    good: list[int] = Field(description="Finished with their TTFT and 99% of their gaps in time.")
    ttft_judged: list[int] = Field(description="With a first token, or late without one; as delivered.")
    ttft_missed: list[int]
    tbt_requests: list[int] = Field(description="With at least one gap.")
    gaps: list[int] = Field(description="Between tokens, as delivered.")
    gaps_missed: list[int]
    engine_ttft_judged: list[int] = Field(description="The same as the engine made them.")
    engine_ttft_missed: list[int]
    engine_gaps: list[int]
    engine_gaps_missed: list[int]
    prompt_tokens: list[int]
    cached_tokens: list[int] = Field(
        description="Of these, found in the prefix cache; the rest was prefilled."
    )
    output_tokens: list[int]
    refused: list[int] = Field(description="Answered with 429 or 503 by the gateway.")
    prefill_sm_ms: list[int] = Field(
        description="SM time of prefill: milliseconds times SMs. A tenant's is its share by prefilled tokens."
    )
    decode_sm_ms: list[int] = Field(description="The same of decode, shared by tokens made.")
    total_sm_ms: list[int] = Field(description="SM time that there was, for shares; the node's.")
    asked: list[int] = Field(
        description="Requests that are over, but for those that clients gave up or that were not valid."
    )
    unserved: list[int] = Field(description="Of these: refused, expired, lost or failed.")
    limited: list[int] = Field(description="Of these, refused by limits of the tenant or of its key.")
    e2e_judged: list[int] = Field(description="Requests whose whole answers had a target.")
    e2e_missed: list[int] = Field(description="Of these, whose last token came too late.")
    worst_wait_ms: list[int] = Field(description="The longest that any request waited; a largest value.")
    worst_ttft_ms: list[int] = Field(description="A largest value, as delivered.")
    worst_gap_ms: list[int] = Field(description="A largest value, as delivered.")
    waiting: list[int] = Field(description="The most at once without a first token.")
    late: list[int] = Field(description="The most at once past their TTFT target.")
    in_flight: list[int] = Field(description="The most at once.")


class MarkOut(BaseModel):
    """Something that happened at an instant."""

    at: datetime
    kind: str = Field(examples=["slo"], description="`engine`, `policy`, `slo`, `tenant` or `profile`.")
    tenant: str | None = Field(description="Null for what concerns all.")
    text: str = Field(examples=["chat: TBT 40 to 30 ms"])


class HistoryOut(BaseModel):
    """One tenant's history, or the node's. Periods in which nothing happened are left out."""

    tenant: str | None = Field(description="Null for the node: all tenants together, and the GPU.")
    step_s: int = Field(examples=[60])
    kept_from: datetime = Field(description="Earlier points of this length are not kept.")
    at: list[datetime] = Field(description="When each period begins.")
    columns: HistoryColumns
    marks: list[MarkOut] = Field(description="Oldest first, at most 500, the newest.")


class DecisionSummaryOut(BaseModel):
    """Decisions alike in one period."""

    at: datetime
    mode: str = Field(examples=["split"])
    reason: str = Field(examples=["best_fit"])
    count: int
    time_ms: int = Field(description="What their steps took.")
    prefill_tokens: int


class DecisionSummariesOut(BaseModel):
    """What was decided, by time and then the most frequent first."""

    step_s: int = Field(examples=[60])
    summaries: list[DecisionSummaryOut]


class PastAlarmOut(BaseModel):
    """One alarm from its beginning to its end."""

    alarm_id: int = Field(examples=[17], description="Grows with each alarm.")
    kind: str = Field(examples=["ttft_burn"])
    tenant: str | None
    severity: str = Field(examples=["warning"])
    began_at: datetime = Field(description="When its condition began.")
    raised_at: datetime
    ended_at: datetime | None = Field(description="Null while it is raised.")
    ended_by: str | None = Field(description="`cleared`, or `restart`: the daemon ended before it did.")
    text: str


class PastAlarmsOut(BaseModel):
    """Alarms, newest first."""

    alarms: list[PastAlarmOut]
    next_before: int | None = Field(
        examples=[11], description="Ask with this as `before` for the next page; null at the end."
    )


def history_routes(history: History, alarms: AlarmStore, control_plane: ControlPlane) -> APIRouter:
    """`/history`, `/history/decisions`, `/alarms/history`."""
    router = admin_router(tags=["history"])

    @router.get("/history", responses=documented(404))
    async def get_history(
        tenant: Annotated[str | None, Query(description="Without it the node's.")] = None,
        from_: From = None,
        to: To = None,
        step_s: Step = MINUTE_S,
    ) -> HistoryOut:
        """Show what was served: requests, attainment, tokens, SM time, waits, and what happened meanwhile."""
        now_s = time.time()
        period = _period(from_, to, step_s, now_s=now_s)
        since_ms = since_of(control_plane, tenant)
        points = await history.read(NODE if tenant is None else tenant, since_ms, period)
        marks = await history.marks(period, tenant=tenant, since_ms=since_ms)
        return HistoryOut(
            tenant=tenant,
            step_s=step_s,
            kept_from=instant(max(0.0, history.kept_since_s(step_s, now_s))),
            at=[instant(at) for at, _ in points],
            columns=_columns([row for _, row in points]),
            marks=[
                MarkOut(at=instant(mark.at_s), kind=mark.kind, tenant=mark.tenant, text=mark.text)
                for mark in marks
            ],
        )

    @router.get("/history/decisions", responses=documented())
    async def get_decision_history(
        from_: From = None, to: To = None, step_s: Step = MINUTE_S
    ) -> DecisionSummariesOut:
        """Show how often each kind of decision was taken, in minutes, hours or days (60, 3600 or 86400)."""
        period = _period(from_, to, step_s, now_s=time.time())
        if step_s < MINUTE_S or stored_step_s(step_s) != step_s:
            raise InvalidValueError("step_s", f"step_s is {step_s}; allowed are 60, 3600 and 86400")
        segment = Segment(step_s=step_s, start_s=period.first_s, end_s=int(period.end_s))
        found = await history.decisions(segment)
        return DecisionSummariesOut(
            step_s=step_s,
            summaries=[
                DecisionSummaryOut(
                    at=instant(at),
                    mode=summary.mode,
                    reason=summary.reason,
                    count=summary.count,
                    time_ms=summary.time_ms,
                    prefill_tokens=summary.prefill_tokens,
                )
                for at, summary in found
            ],
        )

    @router.get("/alarms/history", responses=documented())
    async def list_past_alarms(
        tenant: Annotated[str | None, Query(description="Only of this tenant.")] = None,
        kind: Annotated[str | None, Query(description="Such as ttft_burn.")] = None,
        from_: Annotated[AwareDatetime | None, Query(alias="from", description="Not over before.")] = None,
        to: Annotated[AwareDatetime | None, Query(description="Raised before.")] = None,
        before: Annotated[int | None, Query(ge=1, le=_ID_MAX, description="Only older alarms.")] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    ) -> PastAlarmsOut:
        """List alarms with their beginning and end, those that are raised now included."""
        found = await history.past_alarms(
            alarms, tenant=tenant, kind=kind, start=from_, end=to, before_id=before, limit=limit
        )
        return PastAlarmsOut(
            alarms=[PastAlarmOut.model_validate(alarm, from_attributes=True) for alarm in found],
            next_before=found[-1].alarm_id if len(found) == limit else None,
        )

    return router


def since_of(control_plane: ControlPlane, tenant: str | None) -> int:
    """When the tenant was created, in ms: deleted tenants may have had its name. 0 for the node.

    Raises: NotFoundError.
    """
    if tenant is None:
        return 0
    known = control_plane.directory.tenants.get(tenant)
    if known is None:
        raise NotFoundError(f"there is no tenant {tenant[:64]!r}")
    return known.since_ms


def _period(from_: datetime | None, to: datetime | None, step_s: int, *, now_s: float) -> Period:
    end_s = now_s if to is None else seconds_of("to", to)
    start_s = end_s - DEFAULT_LENGTH_S if from_ is None else seconds_of("from", from_)
    return Period(start_s=start_s, end_s=end_s, step_s=step_s)


def seconds_of(name: str, at: datetime) -> float:
    """Unix time of an instant that was asked for. Raises: InvalidValueError outside of what can be kept."""
    try:
        at_s = at.timestamp()
    except (OverflowError, ValueError):
        at_s = -1.0
    if not EARLIEST_S <= at_s <= LATEST_S:
        raise InvalidValueError(name, f"{name} is {at.isoformat()}; allowed are the years 1971 to 2200")
    return at_s


def _columns(rows: list[Row]) -> HistoryColumns:
    return HistoryColumns.model_validate(
        {column.name.lower(): [row[column] for row in rows] for column in Column}
    )
