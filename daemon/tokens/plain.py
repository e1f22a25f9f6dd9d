"""Which requests' answers may be made of the scheduler's tokens: those whose stream is text and nothing else.

A field that is not known here may change an answer in a way that is not known here either: the front end
answers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

_ANY = frozenset(
    {
        *("model", "messages", "stream", "user", "rid", "extra_key", "cache_salt", "custom_params"),
        *("max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stop", "stop_token_ids"),
        *("no_stop_trim", "skip_special_tokens", "temperature", "top_p", "top_k", "min_p", "seed"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "store", "metadata"),
        *("response_format", "json_schema", "regex", "ebnf"),
    }
)
"""What only says which tokens come, or when they end."""
_NOTHING = (b"null", b"false", b"[]", b"{}", b"0")
_ONE = (b"null", b"1")
_ONLY: Mapping[str, tuple[bytes, ...]] = {
    "n": _ONE,
    "best_of": _ONE,
    **dict.fromkeys(("top_logprobs", "echo", "suffix", "tools", "functions"), _NOTHING),
    "tool_choice": (b"null", b'"none"'),
    "parallel_tool_calls": (b"null", b"false", b"true"),
}
"""Fields with the values that change nothing."""
_USAGE = msgspec.json.Decoder(dict[str, Raw] | None)


def is_plain(fields: Mapping[str, Raw]) -> bool:
    """Whether the streamed answer to this body is its text, in one choice."""
    for name, value in fields.items():
        if name in _ANY:
            continue
        raw = bytes(value)
        if name == "prompt":
            if not _is_one_prompt(raw):
                return False
        elif name == "logprobs":
            # Of a completion it is a number, and 0, as which false is read, asks for those of the tokens.
            if raw != b"null" and (raw != b"false" or "prompt" in fields):
                return False
        elif name == "stream_options":
            if not _is_plain_usage(raw):
                return False
        elif raw not in _ONLY.get(name, ()):
            return False
    return bytes(fields.get("stream", b"")) == b"true"


def _is_one_prompt(raw: bytes) -> bool:
    """A text or its token ids. Any list of prompts is a batch to SGLang, whose requests get other ids."""
    return raw.startswith(b'"') or (raw.startswith(b"[") and raw[1:65].lstrip()[:1].isdigit())


def _is_plain_usage(raw: bytes) -> bool:
    """Usage at the end; not with each event."""
    options = _USAGE.decode(raw) or {}
    return all(name == "include_usage" or bytes(value) in _NOTHING for name, value in options.items())
