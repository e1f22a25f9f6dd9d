"""The facts about outputs that every kind of answer states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pdmuxd.engine.emulator.requests import Phase
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.logprobs import text_of_pieces

END_TOKEN_ID = 2
"""Llama's `</s>`, of which the emulated model is a kind."""


def usage_of(
    outputs: Sequence[Output], *, produced_tokens: int | None = None, choices: int = 1
) -> Mapping[str, Any]:
    """OpenAI's usage object over all outputs of a response, or after `produced_tokens` of it.

    Of `choices` answers to one prompt, it counts once.
    """
    prompt = sum(output.plan.prompt_tokens for output in outputs[::choices])
    completion = sum(output.produced for output in outputs) if produced_tokens is None else produced_tokens
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(output.request.reused_tokens for output in outputs[::choices])
        },
        "reasoning_tokens": 0,
    }


def finish_reason(output: Output) -> str:
    """`stop`, `length`, or `abort` if it was ended before its time."""
    return output.plan.finish_reason if output.request.phase is Phase.FINISHED else "abort"


def matched_by(output: Output) -> str | int | None:
    """The stop text that ended an output, or the token with which the model itself did."""
    if output.plan.matched_stop is None and finish_reason(output) == "stop":
        return END_TOKEN_ID
    return output.plan.matched_stop


def text_of(output: Output) -> str:
    """The text produced so far."""
    return text_of_pieces(output.plan.pieces[: output.produced])
