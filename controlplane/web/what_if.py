"""What-if: TBT targets typed into a form, and what the policy in force would do for each, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from pdmuxd.controlplane.api.what_if import TbtCostOut, WhatIfIn, WhatIfOut, answer_of, costs_of
from pdmuxd.controlplane.outlook.tbt_cap_rules import KnownCosts
from pdmuxd.controlplane.outlook.what_if import Predictors, what_if
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.forms import number_of, refused
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.tables import Column, CsvName, Table, count, long, ms, ratio, share, when, yes_no
from pdmuxd.engine.core.errors import EngineError, InvalidValueError

MOST = 6
"""Targets side by side; each is asked of the policy some dozens of times, for the lowest that is feasible."""
FIELDS = {
    "decode_bs": "Requests that decode at once",
    "decode_context_tokens": "Tokens that each of them has",
    "prefill_new_tokens": "Tokens of the prompt that comes",
    "prefill_reused_tokens": "Of them in the cache",
}
Typed = Annotated[str, Query(max_length=80)]


def what_if_routes(telemetry: Telemetry, predictors: Predictors, known: KnownCosts) -> APIRouter:
    """`/ui/what-if`. The form is in the address, so that an answer can be shown to others."""
    router = page_router()

    @router.get("/what-if")
    def ask(
        request: Request,
        tbt_ms: Typed = "",
        decode_bs: Typed = "",
        decode_context_tokens: Typed = "",
        prefill_new_tokens: Typed = "",
        prefill_reused_tokens: Typed = "",
        csv: CsvName = "",
    ) -> Response:
        load = dict(
            zip(
                FIELDS,
                (decode_bs, decode_context_tokens, prefill_new_tokens, prefill_reused_tokens),
                strict=True,
            )
        )
        error, answers = None, []
        try:
            answers = [
                answer_of(what_if(one.to_wish(), telemetry, predictors)) for one in _asked(tbt_ms, load)
            ]
        except (InvalidValueError, EngineError) as found:
            error = found
        return sheet(
            request,
            csv,
            "what_if.html",
            200 if error is None else 503 if isinstance(error, EngineError) else 422,
            title="What-if",
            heading="What if a TBT target were another?",
            lines=(
                "The policy in force is asked what it would do, and what that costs. Nothing is changed.",
                "It is asked of now: the load of a past time is not kept in what this needs.",
            ),
            tables=(_answers(answers), _splits(answers), _costs(telemetry, known)),
            error=error,
            answers=answers,
            fields=FIELDS,
            typed={"tbt_ms": tbt_ms, **load},
            most=MOST,
        )

    return router


def _asked(tbt_ms: str, load: dict[str, str]) -> list[WhatIfIn]:
    """A question for each target that was typed. Raises: InvalidValueError."""
    targets = [part for part in tbt_ms.replace(";", " ").split() if part]
    if len(targets) > MOST:
        raise InvalidValueError("tbt_ms", f"tbt_ms has {len(targets)} targets; allowed are {MOST}")
    given: dict[str, object] = {}
    for name, typed in load.items():
        if typed.strip():
            number = number_of(typed)
            given[name] = int(number) if isinstance(number, float) and number.is_integer() else number
    try:
        return [WhatIfIn.model_validate({"tbt_ms": number_of(one), **given}) for one in targets]
    except ValidationError as error:
        raise refused(error, "tbt_ms") from None


def _answers(answers: Sequence[WhatIfOut]) -> Table:
    return Table(
        name="answers",
        title="Side by side",
        note=f"asked of the policy {answers[0].policy} with {answers[0].predictors}" if answers else "",
        columns=(
            Column("tbt_ms", "TBT target, ms", lambda value: f"{value:g}", "n"),
            yes_no("feasible", "Feasible"),
            Column("mode", "Prefill runs as"),
            ms("prefill_ms", "Whole prefill, ms"),
            count("prefill_tokens_per_s", "Prompt tokens per s"),
            ms("lowest_feasible_tbt_ms", "Lowest feasible, ms"),
            yes_no("feasible_busy", "Feasible when busy"),
            ms("lowest_feasible_tbt_busy_ms", "Lowest then, ms"),
            long("text", "In words"),
        ),
        rows=[
            (
                one.tbt_ms,
                one.feasible,
                one.mode,
                one.prefill_ms,
                one.prefill_tokens_per_s,
                one.lowest_feasible_tbt_ms,
                one.busy and one.busy.feasible,
                one.busy and one.busy.lowest_feasible_tbt_ms,
                one.text,
            )
            for one in answers
        ],
        empty="Type one target or several, and ask.",
    )


def _splits(answers: Sequence[WhatIfOut]) -> Table:
    return Table(
        name="splits",
        title="Every split under that load",
        columns=(
            Column("split", "Prefill | decode SMs"),
            Column("tbt_ms", "Target, ms", lambda value: f"{value:g}", "n"),
            yes_no("meets", "Meets it"),
            yes_no("chosen", "Taken"),
            ms("decode_ms", "Step alone, ms"),
            ratio("guard_ratio", "Guard"),
            ms("worst_ms", "Step at worst, ms"),
            ms("slack_ms", "Slack, ms"),
            ms("prefill_ms", "Whole prefill, ms"),
            count("prefill_tokens_per_s", "Prompt tokens per s"),
        ),
        rows=[
            (
                f"{split.prefill_sms} | {split.decode_sms}",
                one.tbt_ms,
                split.meets,
                split.partition_id == one.chosen_partition_id,
                split.decode_ms,
                split.guard_ratio,
                split.worst_ms,
                split.slack_ms,
                split.prefill_ms,
                split.prefill_tokens_per_s,
            )
            for one in answers
            for split in one.groups
        ],
        empty="The policy was asked nothing, or splits nothing.",
    )


def _costs(telemetry: Telemetry, known: KnownCosts) -> Table:
    found: list[TbtCostOut] = []
    empty = "Nothing decoded for two tenants in the last minutes."
    try:
        found = costs_of(telemetry, known)
    except EngineError as error:
        empty = f"It is not known: {error}."
    return Table(
        name="costs",
        title="What strict targets cost the others",
        note="of the last minutes' decoding",
        columns=(
            Column("tenant", "Tenant"),
            ms("tbt_ms", "Target, ms"),
            ms("others_tbt_ms", "Of the others, ms"),
            share("time_ratio", "Time it was the strictest"),
            share("prefill_busy_ratio", "Prefill busy"),
            share("prefill_busy_ratio_without", "Without it"),
            share("prefill_ratio", "Cost"),
            share("max_tbt_cost_ratio", "It may cost"),
            when("capped_since", "Capped since"),
            ms("planned_tbt_ms", "Planned for, ms"),
        ),
        rows=[
            (
                one.tenant,
                one.tbt_ms,
                one.others_tbt_ms,
                one.time_ratio,
                one.prefill_busy_ratio,
                one.prefill_busy_ratio_without,
                one.prefill_ratio,
                one.max_tbt_cost_ratio,
                one.capped_since,
                one.planned_tbt_ms,
            )
            for one in found
        ],
        empty=empty,
    )
