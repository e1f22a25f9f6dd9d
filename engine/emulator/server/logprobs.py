"""Log probabilities of the emulated model's tokens: made up, the same for the same token, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec


def text_of_pieces(pieces: Sequence[bytes]) -> str:
    """The text of pieces, which are parts of a JSON string."""
    text: str = msgspec.json.decode(b'"' + b"".join(pieces) + b'"')
    return text


def chat_logprobs(pieces: Sequence[bytes], top: int) -> Mapping[str, Any]:
    """Log probabilities in the form of /v1/chat/completions."""
    content = []
    for token, likely in _with_alternatives(pieces, top):
        entries = [_entry(each, value) for each, value in likely.items()]
        content.append({**_entry(token, _logprob(token)), "top_logprobs": entries})
    return {"content": content}


def completion_logprobs(pieces: Sequence[bytes], top: int, *, echoed: int = 0) -> Mapping[str, Any]:
    """Log probabilities in the form of /v1/completions; so many `echoed` pieces are the prompt's, whose first
    has none."""
    offset = 0
    tokens = [text_of_pieces([piece]) for piece in pieces]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    logprobs: list[float | None] = [_logprob(token) for token in tokens]
    likeliest: list[dict[str, float] | None] = [likely for _, likely in _with_alternatives(pieces, top)]
    if echoed:
        logprobs[0] = likeliest[0] = None
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": likeliest if top else [],
        "text_offset": offsets,
    }


def _with_alternatives(pieces: Sequence[bytes], top: int) -> list[tuple[str, dict[str, float]]]:
    found = []
    for piece in pieces:
        token = text_of_pieces([piece])
        first = _logprob(token)
        others = {f" {chr(97 + i % 26)}{i // 26 or ''}~": first - 1.0 - i / 8 for i in range(max(0, top - 1))}
        found.append((token, {token: first, **others} if top else {}))
    return found


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}


def _logprob(token: str) -> float:
    return -0.001 - crc32(token.encode("utf-8", "surrogatepass")) % 1000 / 1000
