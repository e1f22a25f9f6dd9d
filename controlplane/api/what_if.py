"""What-if over REST: what the live predictors say of a TBT target before it is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.slos import TBT_MS, in_words
from pdmuxd.controlplane.milliseconds import from_ms, to_ms
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.what_if import Outlook, Predictors, Source, Wish, what_if
from pdmuxd.engine.core.forecast import SplitForecast

_BATCH, _TOKENS, _REUSED = (1, 4096), (1, 1_000_000), (0, 1_000_000)
_EXAMPLE: JsonDict = {
    "tbt_ms": 30,
    "decode_bs": 16,
    "decode_context_tokens": 2000,
    "prefill_new_tokens": 4096,
}
_PRESENT = "Null or absent: as it is now."


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
    decode_bs: int | None = Field(None, strict=True, ge=_BATCH[0], le=_BATCH[1], description=_PRESENT)
    decode_context_tokens: int | None = Field(
        None, strict=True, ge=_TOKENS[0], le=_TOKENS[1], description=f"Of each decoding request. {_PRESENT}"
    )
    prefill_new_tokens: int | None = Field(
        None, strict=True, ge=_TOKENS[0], le=_TOKENS[1], description=_PRESENT
    )
    prefill_reused_tokens: int | None = Field(
        None, strict=True, ge=_REUSED[0], le=_REUSED[1], description=_PRESENT
    )

    def to_wish(self) -> Wish:
        """Convert to seconds."""
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
        description="`default`: nothing has run yet. `mixed`: some given, the rest present or default.",
    )


class SplitOut(BaseModel):
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
    """A fused batch on all SMs."""

    meets: bool
    token_budget: int = Field(
        description="Prompt tokens of one batch; 0 if none is short enough.", examples=[512]
    )
    worst_ms: float | None
    prefill_tokens_per_s: float | None


class WhatIfOut(BaseModel):
    """What would become of the target."""

    tbt_ms: float = Field(examples=[30.0])
    assumed: AssumedOut
    feasible: bool
    chosen_partition_id: int | None = Field(
        description="If it is not feasible, the split with the most decode SMs."
    )
    reason: str
    text: str
    predictors: str = Field(description="The profile that was asked.")
    prefill_ms: float | None
    prefill_tokens_per_s: float | None = Field(description="Of the chosen split.")
    lowest_feasible_tbt_ms: float | None = Field(description="The strictest target that some split meets.")
    fused: FusedOut
    groups: list[SplitOut]


def what_if_routes(telemetry: Telemetry, predictors: Predictors) -> APIRouter:
    """`/what-if`."""
    router = admin_router(tags=["what-if"])

    @router.post("/what-if", responses=documented(503))
    def ask_what_if(body: WhatIfIn) -> WhatIfOut:
        """Ask the live predictors which split a TBT target would get, and what it costs. Changes nothing."""
        return _answer(what_if(body.to_wish(), telemetry, predictors))

    return router


def _answer(outlook: Outlook) -> WhatIfOut:
    found, assumed = outlook.forecast, outlook.assumed
    splits = [_split(each, assumed.prefill_new_tokens) for each in found.groups]
    chosen = None if found.chosen is None else _split(found.chosen, assumed.prefill_new_tokens)
    fused = found.fused
    return WhatIfOut(
        tbt_ms=to_ms(outlook.wish.tbt_s),
        assumed=AssumedOut(**{name: getattr(assumed, name) for name in AssumedOut.model_fields}),
        feasible=chosen is not None and chosen.meets,
        chosen_partition_id=chosen.partition_id if chosen else None,
        reason=found.reason.value,
        text=outlook.text,
        predictors=outlook.predictors,
        prefill_ms=chosen.prefill_ms if chosen else None,
        prefill_tokens_per_s=chosen.prefill_tokens_per_s if chosen else None,
        lowest_feasible_tbt_ms=min((split.worst_ms for split in splits), default=None),
        fused=FusedOut(
            meets=fused.step_s is not None,
            token_budget=fused.token_budget,
            worst_ms=None if fused.step_s is None else to_ms(fused.step_s),
            prefill_tokens_per_s=None
            if fused.step_s is None
            else round(fused.token_budget / fused.step_s, 1),
        ),
        groups=splits,
    )


def _split(each: SplitForecast, new_tokens: int) -> SplitOut:
    return SplitOut(
        partition_id=each.partition_id,
        prefill_sms=each.partition.prefill_sms,
        decode_sms=each.partition.decode_sms,
        decode_ms=to_ms(each.decode_s),
        guard_ratio=round(each.guard_ratio, 4),
        worst_ms=to_ms(each.worst_s),
        slack_ms=to_ms(each.target_s - each.worst_s),
        meets=each.meets,
        prefill_ms=to_ms(each.prefill_s),
        prefill_tokens_per_s=round(new_tokens / each.prefill_s, 1),
    )
