"""Decode slots as a bound of the rate: a request holds one for as many steps as its answer has tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.types import DecodeShape, Observation, WaitingRequest


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
        cls,
        obs: Observation,
        requests: Sequence[WaitingRequest],
        *,
        split_step_ratio: float,
        fused_step_ratio: float,
    ) -> SlotUse | None:
        """What `requests` would occupy; None while slots are free for all that wait."""
        if not obs.are_slots_short:
            return None
        usual = dict(obs.answer_tokens)
        known = [usual[request.tenant] for request in requests if request.tenant in usual]
        return cls(
            slots=obs.limits.max_decode_bs,
            answer_tokens=sum(known) / len(known) if known else 0.0,
            split_step_ratio=split_step_ratio,
            fused_step_ratio=fused_step_ratio,
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
