"""Decode slots as a bound of the rate: a request holds one for as many steps as its answer has tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.tbt_classes import DECODE_SHARE
from pdmuxd.engine.core.queueing import shape_of
from pdmuxd.engine.core.types import DecodeShape, Observation, WaitingRequest

LEAST_SLOTS = 32
"""Fewer make steps hardly shorter: the weights are read for 32 rows in 5.2 ms, for 96 in 6.1 (one H200,
Llama-8B)."""


def within_target(
    obs: Observation, context: PolicyContext, table: PartitionTable, guard: ContentionGuard
) -> Observation:
    """The observation with as many decode slots as the TBT target has time for, by contexts as long as those
    that decode now: a prompt that would make a batch for which no plan meets the target waits for a slot.

    A plan is a split, whose widest part decode has beside the prompt, or a fused step, of which decode leaves
    `DECODE_SHARE` to the prompt.
    """
    most, target_s = obs.limits.max_decode_bs, obs.tbt_target_s
    if target_s is None or obs.decoding or not obs.waiting or not LEAST_SLOTS <= obs.decode.bs < most:
        return obs
    latency, planned_s = context.latency, context.planned_tbt_s(target_s)
    full = SlotUse(slots=most).all_decoding(obs.decode)

    def fitting(sms: int, limit_s: float) -> int:
        full_s = latency.decode_s(full, sms)
        if full_s <= limit_s:
            return most
        now_s = latency.decode_s(obs.decode, sms)  # a step's time grows evenly with its requests
        return obs.decode.bs + math.floor(
            (most - obs.decode.bs) * (limit_s - now_s) / max(full_s - now_s, 1e-9)
        )

    slots = fitting(table.rules.total_sms, DECODE_SHARE * planned_s)
    if slots < most and table.split_indices:
        sms = table.groups[table.split_indices[-1]].decode_sms
        beside = obs.under_way[0].shape if obs.under_way else shape_of((obs.waiting[0],))
        slots = max(slots, fitting(sms, planned_s / guard.ratio(sms, beside, full)))
    if not 0 < slots < most:  # none: no plan meets the target, whoever waits
        return obs
    return replace(obs, limits=replace(obs.limits, max_decode_bs=max(LEAST_SLOTS, slots)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """What requests occupy of the decode slots. It bounds their rate while slots are short: the decode batch
    is as large as it can be then, and each request in it has one token of every step."""

    slots: int
    """Of the engine."""
    answer_tokens: float = 0.0
    """Of an answer to the requests that are to run, on average; 0 if nothing is known of it."""
    split_step_ratio: float = 1.0
    """Typical over predicted seconds of decode steps beside layers."""
    fused_step_ratio: float = 1.0
    """The same of fused steps."""

    @classmethod
    def seen(
        cls, obs: Observation, requests: Sequence[WaitingRequest], estimates: StepEstimates
    ) -> SlotUse | None:
        """What `requests` would occupy; None while slots are free for all that wait."""
        if not obs.are_slots_short:
            return None
        known: list[float] = []
        if obs.answer_tokens:
            usual = dict(obs.answer_tokens)
            known = [usual[request.tenant] for request in requests if request.tenant in usual]
        return cls(
            slots=obs.limits.max_decode_bs,
            answer_tokens=sum(known) / len(known) if known else 0.0,
            split_step_ratio=estimates.split_ratio,
            fused_step_ratio=estimates.fused.sizes.hoped_level,
        )

    def all_decoding(self, decode: DecodeShape) -> DecodeShape:
        """The batch with a request in each slot."""
        more = max(1.0, self.slots / max(1, decode.bs))
        return DecodeShape(
            bs=max(self.slots, decode.bs),
            reused_tokens=round(more * decode.reused_tokens),
            max_context_tokens=decode.max_context_tokens,
        )

    def occupied_s(self, requests: int, step_s: float, begin_s: float) -> float:
        """Seconds of all slots that these requests take, each for a step of `step_s` for every token of its
        answer and for `begin_s` before."""
        return requests / self.slots * (self.answer_tokens * step_s + begin_s)

    def useful_tokens(self, prompt_tokens: float) -> float:
        """Tokens of a fused step with all slots decoding and as many prompt tokens, in prompts of so many,
        as become as many answers: a larger step finds no slots for its prompts."""
        if not self.answer_tokens:
            return math.inf
        return self.slots * (1.0 + prompt_tokens / self.answer_tokens)
