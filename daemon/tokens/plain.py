"""Which requests' answers may be made of the scheduler's tokens: those whose stream is text and nothing else.

A field that is not known here may change an answer in a way that is not known here either: the front end
answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Raw

from pdmuxd.daemon.tokens.forms import Shape

Fields = Mapping[str, Raw]
"""A body's, as the client wrote them."""


class Direct(NamedTuple):
    """What an answer needs that is made of tokens."""

    shape: Shape = Shape.OPENAI
    is_chat: bool = False
    """Whether a parser of the front end may change its text."""
    has_tools: bool = False
    """Whether a parser of calls may, too."""
    is_forced: bool = False
    """Whether it has to call one."""
    is_several: bool = False
    """Whether it may have several choices, each of which the engine gives an id of its own."""
    is_counted: bool = False
    """Whether each event says how many tokens there are."""
    has_logprobs: bool = False
    """Whether it says how likely they were."""


PLAIN = Direct()

_SAMPLING = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "sampling_seed", "logit_bias"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty"),
        *("stop", "stop_token_ids", "no_stop_trim", "ignore_eos", "skip_special_tokens"),
        *("max_tokens", "min_tokens", "max_new_tokens", "min_new_tokens"),
        *("regex", "ebnf", "json_schema", "structural_tag", "custom_params"),
    }
)
"""What only says which tokens come, or when they end."""
_REQUEST = frozenset({"model", "stream", "user", "rid", "extra_key", "cache_salt", "metadata"})
_OPENAI = (
    _REQUEST
    | _SAMPLING
    | {"prompt", "messages", "max_completion_tokens", "store", "response_format", "reasoning_effort"}
) - {"max_new_tokens", "min_new_tokens", "sampling_seed", "structural_tag"}
_MESSAGES = _REQUEST | {
    *("messages", "system", "max_tokens", "stop_sequences", "temperature", "top_k", "top_p"),
    *("output_config", "thinking"),
}
_RESPONSES = (_REQUEST | _SAMPLING) - {"seed", "logit_bias"} | {
    *("input", "instructions", "max_output_tokens", "parallel_tool_calls", "text", "truncation"),
    *("service_tier", "max_tool_calls", "reasoning"),
}
_GENERATE = _REQUEST | {"text", "input_ids"}
_NOTHING = (b"null", b"false", b"[]", b"{}", b"0")
_ONE = (b"null", b"1")
_ANY_BOOL = (b"null", b"false", b"true")
_ONLY: Mapping[str, tuple[bytes, ...]] = {
    **dict.fromkeys(("echo", "suffix", "functions"), _NOTHING),
    "parallel_tool_calls": _ANY_BOOL,
    # What SGLang takes them for where they are not said.
    **dict.fromkeys(("separate_reasoning", "stream_reasoning"), (b"true",)),
}
"""Fields with the values that change nothing."""
_OF_GENERATE: Mapping[str, tuple[bytes, ...]] = {
    "return_logprob": _NOTHING,
    "return_prompt_token_ids": _NOTHING,
    "return_text_in_logprobs": _ANY_BOOL,
}
_TOOLS = ("tools", "tool_choice")
_CHANGED_BY_TEMPLATE = re.compile(rb'"force_nonempty_content"|\\')
"""Of a template's arguments what changes how the answer is parsed, as it is written or in another way."""
_MAY_CALL = (b"", b"null", b'"auto"', b'{"type":"auto"}')
_NO_CHOICE = (b'"none"', b'{"type":"none"}')
_USAGE = msgspec.json.Decoder(dict[str, Raw] | None)
_PARAMS = msgspec.json.Decoder(dict[str, Raw] | list[dict[str, Raw]] | None)


def openai(fields: Fields) -> Direct | None:
    """What the streamed answer to a body of /v1/chat/completions or /v1/completions needs.

    None: it is not streamed, or it is not its text alone.
    """
    is_counted = is_several = has_logprobs = has_tops = False
    for name, value in fields.items():
        if name in _OPENAI or name in _TOOLS:
            continue
        raw = bytes(value)
        if name == "chat_template_kwargs":
            if _CHANGED_BY_TEMPLATE.search(raw):
                return None
            continue
        if name in ("n", "best_of"):
            is_several = is_several or raw not in _ONE
        elif name == "logprobs":
            # Of a completion it is a number, and 0, as which false is read, asks for those of the tokens.
            has_logprobs = raw != b"null" and (raw != b"false" or "prompt" in fields)
        elif name == "top_logprobs":
            has_tops = raw not in _NOTHING
        elif name == "stream_options":
            counted = _counted(raw)
            if counted is None:
                return None
            is_counted = counted
        elif raw not in _ONLY.get(name, ()):
            return None
    if has_tops and not has_logprobs:
        return None
    return _streamed(
        fields,
        Direct(
            is_chat="messages" in fields,
            has_tools=_has_tools(fields),
            is_forced=_is_forced(fields),
            is_several=is_several or ("prompt" in fields and _is_list(bytes(fields["prompt"]))),
            is_counted=is_counted,
            has_logprobs=has_logprobs,
        ),
    )


def messages(fields: Fields) -> Direct | None:
    """The same of a body of /v1/messages."""
    if not fields.keys() <= _MESSAGES | set(_TOOLS):
        return None
    has_tools = _has_tools(fields)
    asked = Direct(Shape.MESSAGES, is_chat=True, has_tools=has_tools, is_forced=_is_forced(fields))
    return _streamed(fields, asked)


def responses(fields: Fields) -> Direct | None:
    """The same of a body of /v1/responses. With tools SGLang holds a message back until it has ended."""
    for name, value in fields.items():
        if name in _RESPONSES or name == "tool_choice":
            continue
        if bytes(value) not in (_NOTHING if name in ("tools", "include") else _ONLY.get(name, ())):
            return None
    return _streamed(fields, Direct(Shape.RESPONSES, is_chat=True))


def generate(fields: Fields) -> Direct | None:
    """The same of a body of /generate."""
    for name, value in fields.items():
        if name == "sampling_params" or name in _GENERATE:
            continue
        if bytes(value) not in _OF_GENERATE.get(name, ()):
            return None
    params = _PARAMS.decode(fields.get("sampling_params", Raw(b"null"))) or {}
    each = params if isinstance(params, list) else [params]
    is_several = any(_is_list(bytes(fields.get(name, b""))) for name in _GENERATE)
    for one in each:
        for name, value in one.items():
            if name == "n":
                is_several = is_several or bytes(value) not in _ONE
            elif name == "spaces_between_special_tokens":
                if bytes(value) == b"false":
                    return None
            elif name not in _SAMPLING:
                return None
    return _streamed(fields, Direct(Shape.GENERATE, is_several=is_several))


def _streamed(fields: Fields, asked: Direct) -> Direct | None:
    return asked if bytes(fields.get("stream", b"")) == b"true" else None


def _has_tools(fields: Fields) -> bool:
    """Whether the model may call one."""
    asked = bytes(fields.get("tools", b"null"))
    return asked not in _NOTHING and _tool_choice(fields) not in _NO_CHOICE


def _is_forced(fields: Fields) -> bool:
    return _has_tools(fields) and _tool_choice(fields) not in _MAY_CALL


def _tool_choice(fields: Fields) -> bytes:
    return bytes(fields.get("tool_choice", b"")).replace(b" ", b"")


def _is_list(raw: bytes) -> bool:
    """Whether it is a list of prompts, of one as well: a batch to SGLang, whose requests get other ids."""
    return raw.startswith(b"[") and not raw[1:65].lstrip()[:1].isdigit()


def _counted(raw: bytes) -> bool | None:
    """Whether there is usage with each event; None where there is something that is not known."""
    options = _USAGE.decode(raw) or {}
    for name, value in options.items():
        if name not in ("include_usage", "continuous_usage_stats") and bytes(value) not in _NOTHING:
            return None
    return bytes(options.get("continuous_usage_stats", b"")) == b"true"
