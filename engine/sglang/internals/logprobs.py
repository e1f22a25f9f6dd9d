"""Log probabilities of tokens as SGLang's scheduler has them, and what its APIs make of some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

from pdmuxd.engine.link.token_frames import LogprobRow, LogprobSample
from pdmuxd.engine.sglang.api.types.requests import StreamedRequest

_CHAT = "sglang.srt.entrypoints.openai.serving_chat:OpenAIServingChat._build_token_logprobs_from_raw"
_CHAT_VALUE = "sglang.srt.entrypoints.openai.protocol:ChoiceLogprobs"
_ENCODER = "sglang.srt.entrypoints.openai.sse_utils:_stream_encoder"
_COMPLETION = "sglang.srt.entrypoints.openai.utils:to_openai_style_logprobs"
_IS_BYTE_LEVEL = "sglang.srt.entrypoints.openai.utils:_is_byte_level_tokenizer"
_BROKEN = (ImportError, AttributeError, TypeError, ValueError, KeyError, IndexError)
_VALUES = (-0.0, -1.0e-7, -0.6931471824645996, -23.5, -math.inf)
"""Floats whose spellings differ between libraries, if any do."""


def logprobs_behind(sent: int, request: StreamedRequest) -> list[LogprobRow] | None:
    """Log probabilities behind its first `sent` tokens; None where SGLang has not one for each of them."""
    found, end = request.logprob, len(request.output_ids)
    columns = [found.output_token_logprobs_idx, found.output_token_logprobs_val]
    if found.top_logprobs_num:
        columns += [found.output_top_logprobs_idx, found.output_top_logprobs_val]
    parts = [column[sent:end] for column in columns]
    if any(len(part) != end - sent for part in parts):
        return None
    return [
        LogprobRow(token, value, *(list(each or ()) for each in top or ((), ())))
        for token, value, *top in zip(*parts, strict=True)
    ]


def logprob_sample(tokenizer: Any, token_ids: Sequence[int]) -> LogprobSample | None:  # noqa: ANN401
    """What SGLang's APIs say of these tokens; None where that cannot be asked."""
    try:
        texts = tokenizer.batch_decode([[token] for token in token_ids])
        told = [
            (_VALUES[number % len(_VALUES)], token, text)
            for number, (token, text) in enumerate(zip(token_ids, texts, strict=True))
        ]
        # Two likely tokens at each place: itself and the one before it.
        tops = [[one, told[number - 1]] for number, one in enumerate(told)]
        serving = SimpleNamespace(tokenizer_manager=SimpleNamespace(tokenizer=tokenizer))
        chat = resolve_name(_CHAT_VALUE)(content=resolve_name(_CHAT)(serving, told, tops))
        completion = resolve_name(_COMPLETION)(
            output_token_logprobs=told, output_top_logprobs=tops, tokenizer=tokenizer
        )
        return LogprobSample(
            is_byte_level=bool(resolve_name(_IS_BYTE_LEVEL)(tokenizer)),
            rows=[
                LogprobRow(token, value, [each[1] for each in top], [each[0] for each in top])
                for (value, token, _), top in zip(told, tops, strict=True)
            ],
            chat=resolve_name(_ENCODER).encode(chat.model_dump()),
            completion=completion.model_dump_json().encode(),
        )
    except _BROKEN:
        return None
