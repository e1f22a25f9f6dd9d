"""Decode slots as a bound of the rate: a request holds one for as many steps as its answer has tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdmuxd.engine.core.types import DecodeShape

ANSWER_MEMORY_S = 20.0
"""What was decoded and begun so long ago counts half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLength:
    """How many tokens an answer has, on average: those decoded lately over the requests begun lately.

    Answers that have not ended count with what they have by now, so that none has to end to be counted.
    """

    decoded_tokens: float = 0.0
    begun: float = 0.0
    at_s: float = 0.0

    @property
    def tokens(self) -> float:
        """The mean; 0 while nothing was decoded."""
        return self.decoded_tokens / (self.begun + 1.0)

    def decoded(self, tokens: int, now_s: float) -> AnswerLength:
        """With what one decision decodes."""
        left = 0.5 ** ((now_s - self.at_s) / ANSWER_MEMORY_S)
        return AnswerLength(
            decoded_tokens=left * self.decoded_tokens + tokens, begun=left * self.begun, at_s=now_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """What requests occupy of the decode slots. It bounds their rate while slots are short: the decode batch
    is as large as it can be then, and each request in it has one token of every step."""

    slots: int
    """Of the engine."""
    answer_tokens: float = 0.0
    """Of an answer, on average."""
    split_step_ratio: float = 1.0
    """Typical over predicted seconds of decode steps beside layers."""
    fused_step_ratio: float = 1.0
    """The same of fused steps."""

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
