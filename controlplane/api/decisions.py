"""Decisions and the lives of requests over REST: the latest of each, from memory."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.long_lists import long_list
from pdmuxd.controlplane.api.parameters import one_of
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import DecisionEvent, RequestEvent, instant, ms
from pdmuxd.controlplane.events.outcomes import OutcomeWord
from pdmuxd.controlplane.telemetry import serializers
from pdmuxd.controlplane.telemetry.decisions import SeenDecision, decision_event, newest
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError
from pdmuxd.engine.core.types import Mode, Reason

LIMIT_MAX = 1000

_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]


class DecisionsOut(BaseModel):
    """The newest decisions that fit, newest first."""

    decisions: list[DecisionEvent]
    total_seen: int = Field(examples=[91234], description="Since the daemon started, kept or not.")
    oldest_at: datetime | None = Field(description="Of those that are kept, whether they fit or not.")
    dropped: int = Field(description="Records that the engine could not send.")


class RequestsOut(BaseModel):
    """The newest requests that fit, newest first."""

    requests: list[RequestEvent]
    kept: int = Field(examples=[2000], description="How many that ended are kept.")


class RequestDecisions(BaseModel):
    """The decisions between a request's arrival and its end, as far as they are kept."""

    count: int = Field(examples=[410])
    by_reason: dict[str, int]
    by_partition_id: dict[str, int]
    min_slack_ms: float | None


class RequestOut(RequestEvent):
    """The life of one request, with what was decided meanwhile."""

    decisions: RequestDecisions


def decision_routes(telemetry: Telemetry) -> APIRouter:
    """`/decisions`, `/requests`."""
    router = admin_router(tags=["decisions"])

    @router.get("/decisions", responses=documented())
    def list_decisions(
        reason: Annotated[
            Annotated[str, one_of(each.value for each in Reason)] | None,
            Query(description="Such as best_fit."),
        ] = None,
        mode: Annotated[
            Annotated[str, one_of(each.value for each in Mode)] | None,
            Query(description="idle, split, fused or decode."),
        ] = None,
        tenant: Annotated[
            str | None, Query(description="Only while a request of this tenant was in the engine.")
        ] = None,
        sitting_out: Annotated[
            bool | None, Query(description="Whether some of the decode batch sat the step out.")
        ] = None,
        since: Annotated[datetime | None, Query(description="Not before this instant.")] = None,
        after_seq: Annotated[int | None, Query(ge=0, description="Only those after this one.")] = None,
        limit: _Limit = 100,
    ) -> DecisionsOut:
        """List the newest decisions, with their reasons and the numbers behind them."""
        _check("reason", reason, [each.value for each in Reason])
        _check("mode", mode, [each.value for each in Mode])
        since_s = None if since is None else _utc(since).timestamp()
        spans = None if tenant is None else _spans(telemetry, tenant)

        def keep(seen: SeenDecision) -> bool:
            return (
                (reason is None or seen.record.reason == reason)
                and (mode is None or seen.record.mode == mode)
                and (sitting_out is None or (seen.record.sitting_out > 0) == sitting_out)
                and (since_s is None or seen.at_s >= since_s)
                and (spans is None or any(start_s <= seen.at_s <= end_s for start_s, end_s in spans))
            )

        kept = telemetry.decisions.snapshot()
        # Who asks each second is not to have the whole memory looked through, beside the tokens.
        begin = 0 if after_seq is None else bisect_right(kept, after_seq, key=attrgetter("seq"))
        stats = telemetry.status().stats
        return DecisionsOut(
            decisions=[decision_event([seen]) for seen in newest(kept[begin:], keep, limit)],
            total_seen=telemetry.decisions.total,
            oldest_at=instant(kept[0].at_s) if kept else None,
            dropped=stats.dropped_records if stats is not None else 0,
        )

    @router.get("/requests", responses=documented(), response_model=RequestsOut)
    def list_requests(
        tenant: str | None = None,
        missed: Annotated[bool | None, Query(description="Whether a target was missed.")] = None,
        outcome: Annotated[
            OutcomeWord | None,
            Query(description="How it ended: see `outcome` of a request."),
        ] = None,
        target: Annotated[
            Literal["ttft", "tbt", "availability", "e2e"] | None,
            Query(description="Only those that missed this one."),
        ] = None,
        in_flight: Annotated[bool, Query(description="Those in flight instead of those that ended.")] = False,
        limit: _Limit = 100,
    ) -> Response:
        """List the newest requests, with the targets that they missed and why."""
        lifecycles = telemetry.requests.in_flight() if in_flight else telemetry.requests.over()

        def keep(lifecycle: RequestLifecycle) -> bool:
            return (
                (tenant is None or lifecycle.tenant == tenant)
                and (missed is None or bool(lifecycle.violations) == missed)
                and (outcome is None or lifecycle.outcome == outcome)
                and (target is None or any(each.target == target for each in lifecycle.violations))
            )

        chosen = list(islice(filter(keep, reversed(lifecycles)), limit))
        answer = RequestsOut(requests=[], kept=telemetry.requests.kept)
        return long_list(answer, "requests", map(serializers.request, chosen))

    @router.get("/requests/{request_id}", responses=documented(404))
    def get_request(request_id: str) -> RequestOut:
        """Show the life of one request: its waiting, prefill and decode, and what was decided meanwhile."""
        lifecycle = telemetry.requests.find(request_id)
        if lifecycle is None:
            kept = f"the last {telemetry.requests.kept} that ended are kept"
            raise NotFoundError(f"there is no request {request_id[:64]!r}; {kept}")
        return RequestOut(
            **serializers.request(lifecycle).model_dump(), decisions=decided_meanwhile(telemetry, lifecycle)
        )

    return router


def decided_meanwhile(telemetry: Telemetry, lifecycle: RequestLifecycle) -> RequestDecisions:
    """What was decided between a request's arrival and its end."""
    by_reason: dict[str, int] = {}
    by_partition_id: dict[str, int] = {}
    slacks = []
    start_s, end_s = _span(lifecycle, telemetry.clock())
    for seen in telemetry.decisions.snapshot():
        if start_s <= seen.at_s <= end_s:
            by_reason[seen.record.reason] = by_reason.get(seen.record.reason, 0) + 1
            by_partition_id[str(seen.record.partition_id)] = (
                by_partition_id.get(str(seen.record.partition_id), 0) + 1
            )
            if seen.record.tbt_slack_s is not None:
                slacks.append(seen.record.tbt_slack_s)
    return RequestDecisions(
        count=sum(by_reason.values()),
        by_reason=by_reason,
        by_partition_id=by_partition_id,
        min_slack_ms=ms(min(slacks, default=None)),
    )


def _spans(telemetry: Telemetry, tenant: str) -> list[tuple[float, float]]:
    """When requests of a tenant were in the engine, joined where they overlap."""
    lifecycles = (*telemetry.requests.ended(), *telemetry.requests.in_flight())
    now_s = telemetry.clock()
    spans: list[tuple[float, float]] = []
    for start_s, end_s in sorted(
        _span(lifecycle, now_s) for lifecycle in lifecycles if lifecycle.tenant == tenant
    ):
        if spans and start_s <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end_s))
        else:
            spans.append((start_s, end_s))
    return spans


def _span(lifecycle: RequestLifecycle, now_s: float) -> tuple[float, float]:
    end_s = lifecycle.ended_s if lifecycle.ended_s is not None else now_s
    return (lifecycle.arrived_s if lifecycle.arrived_s is not None else end_s), end_s


def _utc(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _check(field: str, value: str | None, allowed: list[str]) -> None:
    if value is not None and value not in allowed:
        raise InvalidValueError(field, f"{field} is {value[:40]!r}; allowed are {', '.join(allowed)}")
