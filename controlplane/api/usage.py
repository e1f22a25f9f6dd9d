"""What each tenant used in a period, for charge-back: JSON, or CSV for a spreadsheet."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, Field

from pdmuxd.controlplane.api.access import own_tenant
from pdmuxd.controlplane.api.history import seconds_of, since_of
from pdmuxd.controlplane.api.long_lists import long_list
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.periods import DAY_S, HOUR_S
from pdmuxd.controlplane.history.reading import Usage
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.prices import PriceList
from pdmuxd.engine.core.errors import InvalidValueError

MAX_LENGTH_S = 800 * DAY_S
CSV = "text/csv"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class UsageLineOut(BaseModel):
    """One tenant's use of one model."""

    tenant: str = Field(examples=["chat"])
    tenant_since: datetime = Field(
        description="When it was created: tells it from a tenant of the same name that was deleted."
    )
    model: str = Field(
        examples=["llama-8b"], description="Empty for what came before an engine introduced itself."
    )
    requests: int = Field(description="Ended in the engine; a batch of prompts is one.")
    good: int
    prompt_tokens: int
    cached_tokens: int = Field(description="Of these, found in the prefix cache.")
    prefill_tokens: int = Field(description="The others, which were computed.")
    output_tokens: int
    refused: int
    refused_by_cause: dict[str, int] = Field(examples=[{"tenant_limit": 12}])
    prefill_sm_s: float = Field(description="SM seconds of prefill: its share by prefilled tokens.")
    decode_sm_s: float = Field(description="SM seconds of decode: its share by tokens made.")
    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None
    cost: str | None = Field(
        examples=["12.345678"], description="By the price list that holds now; null without a price."
    )
    currency: str | None = Field(
        examples=["EUR"], description="Of the cost, as in ISO 4217; null without a price."
    )


class UsageOut(BaseModel):
    """All tenants that used anything, by name; those that were deleted since included."""

    from_: datetime = Field(serialization_alias="from", examples=["2026-01-01T00:00:00Z"])
    to: datetime
    lines: list[UsageLineOut]


_COLUMNS = (*(name for name in UsageLineOut.model_fields if name != "refused_by_cause"), "refused_by_cause")


def json_or_csv(line_per: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers with JSON, or with CSV if it is asked for."""
    text = {
        "description": f"JSON, or CSV with a line per {line_per}",
        "content": {CSV: {"schema": {"type": "string"}}},
    }
    return {**documented(), 200: text}


def until_s(to: datetime | None, now_s: float) -> int:
    """Where a period ends that was asked for: with this hour unless it was said.

    Raises: InvalidValueError.
    """
    return int(now_s // HOUR_S * HOUR_S + HOUR_S if to is None else seconds_of("to", to))


def usage_routes(history: History, control_plane: ControlPlane) -> APIRouter:
    """`/usage`."""
    router = admin_router(tags=["history"])

    @router.get("/usage", responses=json_or_csv("tenant and model"), response_model=UsageOut)
    async def get_usage(
        request: Request,
        from_: Annotated[
            AwareDatetime | None,
            Query(alias="from", description="The begin of this month (UTC) unless given."),
        ] = None,
        to: Annotated[
            AwareDatetime | None,
            Query(description="The end of the period, not included; the end of this hour unless given."),
        ] = None,
        tenant: Annotated[str | None, Query(description="Only of this tenant.")] = None,
        format_: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    ) -> Response:
        """Show what each tenant used: whole minutes of the last two days, whole hours before."""
        now_s = time.time()
        now = instant(now_s)
        first = datetime(now.year, now.month, 1, tzinfo=UTC)
        start_s = int(first.timestamp() if from_ is None else seconds_of("from", from_))
        end_s = until_s(to, now_s)
        if end_s <= start_s:
            raise InvalidValueError("to", "to is not later than from")
        if end_s - start_s > MAX_LENGTH_S:
            raise InvalidValueError("from", "from is more than 800 days before to")
        # An operator may ask for a deleted tenant too; a tenant only for itself.
        own = own_tenant(request)
        since_ms = None if own is None else since_of(control_plane, own)
        found = await history.usage(start_s, end_s, now_s=now_s, tenant=tenant, since_ms=since_ms)

        def answer() -> Response:
            prices = control_plane.prices.current()
            lines = [_line(use, prices) for use in found]
            told = UsageOut(from_=instant(start_s), to=instant(end_s), lines=[])
            if format_ == "json":
                return long_list(told, "lines", lines)
            return Response(as_csv(told.model_copy(update={"lines": lines})), media_type=CSV)

        return await asyncio.to_thread(answer)

    return router


def as_csv(usage: UsageOut) -> str:
    """A line per tenant and model, under a line with the names of the columns and the period."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("from", "to", *_COLUMNS))
    for line in usage.lines:
        shown = line.model_dump(mode="json")
        shown["refused_by_cause"] = " ".join(f"{k}={v}" for k, v in sorted(line.refused_by_cause.items()))
        values = ("" if shown[name] is None else shown[name] for name in _COLUMNS)
        writer.writerow((usage.from_.isoformat(), usage.to.isoformat(), *map(csv_cell, values)))
    return text.getvalue()


def csv_cell(value: object) -> object:
    """Quote a name that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _line(use: Usage, prices: PriceList) -> UsageLineOut:
    counts = use.counts
    prefilled = counts[Column.PROMPT_TOKENS] - counts[Column.CACHED_TOKENS]
    cost = prices.cost(
        use.series.tenant,
        use.series.model,
        input_tokens=prefilled,
        cached_tokens=counts[Column.CACHED_TOKENS],
        output_tokens=counts[Column.OUTPUT_TOKENS],
    )
    return UsageLineOut(
        tenant=use.series.tenant,
        tenant_since=instant(use.series.since_ms / 1000),
        model=use.series.model,
        requests=counts[Column.ENDED],
        good=counts[Column.GOOD],
        prompt_tokens=counts[Column.PROMPT_TOKENS],
        cached_tokens=counts[Column.CACHED_TOKENS],
        prefill_tokens=prefilled,
        output_tokens=counts[Column.OUTPUT_TOKENS],
        refused=counts[Column.REFUSED],
        refused_by_cause=dict(use.refusals),
        prefill_sm_s=counts[Column.PREFILL_SM_MS] / 1000,
        decode_sm_s=counts[Column.DECODE_SM_MS] / 1000,
        ttft_attainment_ratio=_met(counts[Column.TTFT_JUDGED], counts[Column.TTFT_MISSED]),
        tbt_attainment_ratio=_met(counts[Column.GAPS], counts[Column.GAPS_MISSED]),
        cost=None if cost is None else f"{cost:f}",
        currency=None if cost is None else prices.currency,
    )


def _met(judged: int, missed: int) -> float | None:
    return round(1 - missed / judged, 6) if judged else None
