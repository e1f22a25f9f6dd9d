"""The ledger over REST: every request that ended, for charge-back that can be checked line by line."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, Field

from pdmuxd.controlplane.api.access import own_tenant
from pdmuxd.controlplane.api.history import seconds_of, since_of
from pdmuxd.controlplane.api.long_lists import long_list
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.usage import CSV, csv_cell, json_or_csv, until_s
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.ledger import LedgerEntry
from pdmuxd.controlplane.history.periods import DAY_S
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import InvalidValueError

MAX_ROWS = 10_000
_ID_MAX = 2**63 - 1


class LedgerEntryOut(BaseModel):
    """One request that ended."""

    id: int = Field(examples=[90125], description="Grows; `after` goes on behind it.")
    at: datetime = Field(description="The second in which it was counted.")
    request_id: str = Field(examples=["5f0c3e0a3b8c4a0f9d5e6b7c8d9e0f1a"], description="Its `x-request-id`.")
    tenant: str = Field(examples=["chat"])
    tenant_since: datetime
    key_id: str = Field(examples=["k_7Qd2mX"], description="Empty where the gateway did not see it.")
    model: str = Field(examples=["llama-8b"])
    outcome: str = Field(examples=["finished"], description="`finished`, `aborted` or `failed`.")
    status: int | None = Field(description="What the gateway answered; 499: the client left before.")
    prefill_tokens: int = Field(description="Of the prompt, computed.")
    cached_tokens: int = Field(description="Of the prompt, found in the prefix cache.")
    output_tokens: int
    good: bool
    duration_ms: int | None
    ttft_ms: int | None = Field(description="As delivered where it was streamed, else as made.")

    @classmethod
    def of(cls, entry_id: int, entry: LedgerEntry) -> LedgerEntryOut:
        return cls(
            id=entry_id,
            at=instant(entry.at),
            request_id=entry.request_id,
            tenant=entry.tenant,
            tenant_since=instant(entry.tenant_since / 1000),
            key_id=entry.key_id,
            model=entry.model,
            outcome=entry.outcome,
            status=entry.status,
            prefill_tokens=entry.input_tokens,
            cached_tokens=entry.cached_tokens,
            output_tokens=entry.output_tokens,
            good=entry.is_good,
            duration_ms=entry.duration_ms,
            ttft_ms=entry.ttft_ms,
        )


class LedgerOut(BaseModel):
    """Requests in the order in which they were stored."""

    from_: datetime = Field(serialization_alias="from", examples=["2026-01-01T00:00:00Z"])
    to: datetime
    entries: list[LedgerEntryOut]
    next_after: int | None = Field(description="Ask again with it as `after`; null: that was all.")


def ledger_routes(history: History, control_plane: ControlPlane) -> APIRouter:
    """`/ledger`."""
    router = admin_router(tags=["history"])

    @router.get("/ledger", responses=json_or_csv("request"), response_model=LedgerOut)
    async def get_ledger(
        request: Request,
        from_: Annotated[
            AwareDatetime | None, Query(alias="from", description="A day before `to` unless given.")
        ] = None,
        to: Annotated[
            AwareDatetime | None,
            Query(description="The end of the period, not included; the end of this hour unless given."),
        ] = None,
        tenant: Annotated[str | None, Query(description="Only of this tenant.")] = None,
        key: Annotated[str | None, Query(description="Only of this key, by its id.")] = None,
        after: Annotated[int, Query(ge=0, le=_ID_MAX, description="Only behind this id.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="How many at most.")] = 1000,
        format_: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    ) -> Response:
        """Show each request that ended, as it was stored: without any text."""
        end_s = until_s(to, time.time())
        start_s = int(end_s - DAY_S if from_ is None else seconds_of("from", from_))
        if end_s <= start_s:
            raise InvalidValueError("to", "to is not later than from")
        own = own_tenant(request)
        await history.flush()
        found = await asyncio.to_thread(
            history.ledger.list,
            start_s=start_s,
            end_s=end_s,
            tenant=tenant,
            since_ms=None if own is None else since_of(control_plane, own),
            key_id=key,
            after_id=after,
            limit=limit,
        )

        def answer() -> Response:
            entries = [LedgerEntryOut.of(*each) for each in found]
            told = LedgerOut(
                from_=instant(start_s),
                to=instant(end_s),
                entries=[],
                next_after=found[-1][0] if len(found) == limit else None,
            )
            if format_ == "json":
                return long_list(told, "entries", entries)
            return Response(as_csv(told.model_copy(update={"entries": entries})), media_type=CSV)

        return await asyncio.to_thread(answer)

    return router


def as_csv(ledger: LedgerOut) -> str:
    """A line per request under a line with the names of the columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(LedgerEntryOut.model_fields)
    for entry in ledger.entries:
        shown = entry.model_dump(mode="json")
        writer.writerow("" if value is None else csv_cell(value) for value in shown.values())
    return text.getvalue()
