"""What-if over REST: what the live predictors say of a TBT target before it is set."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.slos import TBT_MS
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.milliseconds import from_ms, to_ms
from pdmuxd.controlplane.outlook.assumed_load import Source, Wish
from pdmuxd.controlplane.outlook.tbt_cap_rules import KnownCosts
from pdmuxd.controlplane.outlook.tbt_costs import TbtCost
from pdmuxd.controlplane.outlook.what_if import Outlook, Predictors, tokens_per_s, what_if
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.tenants.tenant_fields import in_words
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.policies.base import Plan, PlanKind

_BATCH, _TOKENS, _REUSED = (1, 4096), (1, 1_000_000), (0, 1_000_000)
_EXAMPLE: JsonDict = {
    "tbt_ms": 30,
    "decode_bs": 16,
    "decode_context_tokens": 2000,
    "prefill_new_tokens": 4096,
}
_RECENT = "Null or absent: that of the last five minutes."


class WhatIfIn(Body):
    """A target, and the load to ask it for."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})
    allowed: ClassVar[Mapping[str, str]] = {
        "tbt_ms": in_words(TBT_MS),
        "decode_bs": in_words(_BATCH),
        "decode_context_tokens": in_words(_TOKENS),
        "prefill_new_tokens": in_words(_TOKENS),
        "prefill_reused_tokens": in_words(_REUSED),
    }

    tbt_ms: float = Field(strict=True, ge=TBT_MS[0], le=TBT_MS[1], allow_inf_nan=False)
    decode_bs: int | None = Field(None, strict=True, ge=_BATCH[0], le=_BATCH[1], description=_RECENT)
    decode_context_tokens: int | None = Field(
        None, strict=True, ge=_TOKENS[0], le=_TOKENS[1], description=f"Of each decoding request. {_RECENT}"
    )
    prefill_new_tokens: int | None = Field(
        None, strict=True, ge=_TOKENS[0], le=_TOKENS[1], description=_RECENT
    )
    prefill_reused_tokens: int | None = Field(
        None, strict=True, ge=_REUSED[0], le=_REUSED[1], description=_RECENT
    )

    def to_wish(self) -> Wish:
        return Wish(
            tbt_s=from_ms(self.tbt_ms),
            decode_bs=self.decode_bs,
            decode_context_tokens=self.decode_context_tokens,
            prefill_new_tokens=self.prefill_new_tokens,
            prefill_reused_tokens=self.prefill_reused_tokens,
        )


class AssumedOut(BaseModel):
    """The load that the answer holds for."""

    decode_bs: int = Field(examples=[16])
    decode_context_tokens: int
    prefill_new_tokens: int
    prefill_reused_tokens: int
    source: Source = Field(
        serialization_alias="from",
        description="`recent`: the last five minutes. `default`: nothing has run. `mixed`: some was given.",
    )


class WhatIfSplitOut(BaseModel):
    """One split under that load."""

    partition_id: int = Field(examples=[3])
    prefill_sms: int
    decode_sms: int
    decode_ms: float = Field(description="One decode step alone.")
    guard_ratio: float
    worst_ms: float = Field(description="The step beside a prefill, at worst.")
    slack_ms: float = Field(description="The target minus the worst case.")
    meets: bool
    prefill_ms: float = Field(description="The whole prefill, alone.")
    prefill_tokens_per_s: float


class FusedOut(BaseModel):
    """Fused steps on all SMs, as the policy in force sizes them."""

    meets: bool
    token_budget: int = Field(
        description="Prompt tokens of one step; 0 if none is short enough, or the policy fuses nothing.",
        examples=[512],
    )
    worst_ms: float | None
    prefill_tokens_per_s: float | None


class BusyOut(BaseModel):
    """The same question for a busy moment of the last five minutes: the 90th percentile of each figure."""

    assumed: AssumedOut
    feasible: bool
    mode: str = Field(examples=["split"])
    text: str
    prefill_tokens_per_s: float | None
    lowest_feasible_tbt_ms: float | None


class WhatIfOut(BaseModel):
    """What would become of the target."""

    tbt_ms: float = Field(examples=[30.0])
    assumed: AssumedOut
    feasible: bool = Field(
        description="Whether what the policy would do meets the target, as it predicts it."
    )
    policy: str = Field(description="The policy that was asked: the one in force.", examples=["auto"])
    mode: str = Field(description="How it would run the prefill: `split` or `fused`.", examples=["split"])
    chosen_partition_id: int | None = Field(
        description="The split that it would take, in `groups`; null if it would take none."
    )
    reason: str
    text: str
    predictors: str = Field(description="The profile that was asked.")
    prefill_ms: float | None
    prefill_tokens_per_s: float | None = Field(description="Of what would be done.")
    lowest_feasible_tbt_ms: float | None = Field(
        description="The strictest target for which the answer would be that it is feasible."
    )
    fused: FusedOut
    groups: list[WhatIfSplitOut]
    busy: BusyOut | None = Field(description="Null where nothing has run, or the whole load was given.")


class TbtCostOut(BaseModel):
    """A tenant whose TBT target was the strictest of those that decoded."""

    tenant: str = Field(examples=["chat"])
    tbt_ms: float = Field(examples=[20.0])
    time_ratio: float = Field(description="The share of the last minutes' decoding in which it was.")
    others_tbt_ms: float = Field(description="The strictest of the others, or its own if that is no laxer.")
    prefill_busy_ratio: float = Field(description="Of the time, predicted for the targets in force.")
    prefill_busy_ratio_without: float = Field(description="The same if it asked for `others_tbt_ms`.")
    prefill_ratio: float = Field(
        examples=[0.12],
        description="What it costs all, or would cost if it were not capped: the difference of the two.",
    )
    max_tbt_cost_ratio: float | None = Field(description="What it may cost; null: any share.")
    capped_since: datetime | None = Field(
        description="Since when it costs too much and is not planned for; null: it is not capped."
    )
    planned_tbt_ms: float = Field(
        description="What steps are planned for: its own target unless it is capped."
    )

    @classmethod
    def of(cls, cost: TbtCost, *, most: float | None, cap: TbtCap | None) -> Self:
        return cls(
            tenant=cost.tenant,
            tbt_ms=to_ms(cost.tbt_s),
            time_ratio=round(cost.time_ratio, 4),
            others_tbt_ms=to_ms(cost.others_tbt_s),
            prefill_busy_ratio=round(cost.prefill_busy_ratio, 4),
            prefill_busy_ratio_without=round(cost.prefill_busy_ratio_without, 4),
            prefill_ratio=round(cost.prefill_ratio, 4),
            max_tbt_cost_ratio=most,
            capped_since=None if cap is None else instant(cap.since_s),
            planned_tbt_ms=to_ms(cost.tbt_s if cap is None else max(cost.tbt_s, cap.tbt_s)),
        )


def what_if_routes(telemetry: Telemetry, predictors: Predictors, known: KnownCosts) -> APIRouter:
    """`/what-if`."""
    router = admin_router(tags=["what-if"])

    @router.post("/what-if", responses=documented(503))
    def ask_what_if(body: WhatIfIn) -> WhatIfOut:
        """Ask the policy in force what it would do for a TBT target, and what that costs. Changes nothing."""
        return answer_of(what_if(body.to_wish(), telemetry, predictors))

    @router.get("/what-if/tbt-costs", responses=documented(503))
    def get_tbt_costs() -> list[TbtCostOut]:
        """Show whose TBT target was the strictest in the last minutes, and what that costs in prefill time.
        Empty without traffic of two tenants, or while there is no engine to predict for."""
        return costs_of(telemetry, known)

    return router


def costs_of(telemetry: Telemetry, known: KnownCosts) -> list[TbtCostOut]:
    """What TBT targets cost. Raises: EngineError while there is no engine to predict for."""
    tenants, caps = telemetry.directory.tenants, telemetry.tbt_caps
    return [
        TbtCostOut.of(cost, most=tenants[cost.tenant].max_tbt_cost_ratio, cap=caps.get(cost.tenant))
        for cost in known()
        if cost.tenant in tenants
    ]


def answer_of(outlook: Outlook) -> WhatIfOut:
    """An outlook as it is told."""
    answer, assumed, target_s = outlook.answer, outlook.assumed, outlook.wish.tbt_s
    chosen = answer.chosen
    splits = [
        _split(plan, outlook.groups[plan.partition_id], target_s, assumed.prefill_new_tokens)
        for plan in answer.splits
    ]
    index = chosen.partition_id if chosen is not None and chosen.kind is PlanKind.SPLIT else None
    taken = next((each for each in splits if each.partition_id == index), None)
    return WhatIfOut(
        **_weighed(outlook),
        tbt_ms=to_ms(target_s),
        policy=outlook.policy,
        chosen_partition_id=taken.partition_id if taken else None,
        reason=(answer.decision if chosen is None else chosen).reason.value,
        predictors=outlook.predictors,
        prefill_ms=taken.prefill_ms if taken else None,
        fused=_fused(answer.fused),
        groups=splits,
        busy=None if outlook.busy is None else BusyOut(**_weighed(outlook.busy)),
    )


def _weighed(outlook: Outlook) -> dict[str, Any]:
    """What is told of each load."""
    chosen, lowest_s = outlook.answer.chosen, outlook.lowest_feasible_tbt_s
    assumed = outlook.assumed
    return {
        "assumed": AssumedOut(**{name: getattr(assumed, name) for name in AssumedOut.model_fields}),
        "feasible": outlook.answer.is_feasible,
        "mode": outlook.answer.decision.mode.value,
        "text": outlook.text,
        "prefill_tokens_per_s": None if chosen is None else tokens_per_s(chosen, assumed.prefill_new_tokens),
        "lowest_feasible_tbt_ms": None if lowest_s is None else to_ms(lowest_s),
    }


def _split(plan: Plan, sizes: Partition, target_s: float, new_tokens: int) -> WhatIfSplitOut:
    numbers = plan.numbers
    decode_s, prefill_s = numbers.predicted_decode_s or 0.0, numbers.predicted_prefill_s or 0.0
    worst_s = decode_s if plan.worst_gap_s is None else plan.worst_gap_s
    return WhatIfSplitOut(
        partition_id=plan.partition_id,
        prefill_sms=sizes.prefill_sms,
        decode_sms=sizes.decode_sms,
        decode_ms=to_ms(decode_s),
        guard_ratio=round(worst_s / decode_s, 4) if decode_s else 1.0,
        worst_ms=to_ms(worst_s),
        slack_ms=to_ms(target_s - worst_s),
        meets=plan.meets,
        prefill_ms=to_ms(prefill_s),
        prefill_tokens_per_s=round(new_tokens / prefill_s, 1) if prefill_s else 0.0,
    )


def _fused(plan: Plan | None) -> FusedOut:
    if plan is None:
        return FusedOut(meets=False, token_budget=0, worst_ms=None, prefill_tokens_per_s=None)
    step_s, worst_s = plan.numbers.predicted_fused_s, plan.worst_gap_s
    return FusedOut(
        meets=plan.meets,
        token_budget=plan.prompt_tokens,
        worst_ms=None if worst_s is None else to_ms(worst_s),
        prefill_tokens_per_s=round(plan.prompt_tokens / step_s, 1) if step_s else None,
    )
