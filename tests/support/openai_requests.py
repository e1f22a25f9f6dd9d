"""What stock clients of OpenAI's API ask for, and which way the tokens of each answer go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

_GREEDY = {"temperature": 0, "max_tokens": 40}
_MESSAGES = [{"role": "user", "content": "Which town lies on the Spree?"}]
_PROMPT = "The town on the Spree is"
_CITY = {"enum": ["Berlin", "Cottbus"]}
_SCHEMA = {
    "type": "object",
    "properties": {"city": _CITY, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a town up.",
        "parameters": {"type": "object", "properties": {"city": _CITY}, "required": ["city"]},
    },
}
_RANDOM_ID = re.compile(r"^call_[0-9a-zA-Z]+$")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, made twice: streamed, and as a whole."""

    name: str
    is_chat: bool
    options: dict[str, Any] = field(default_factory=dict)
    is_direct: bool = True
    """Whether tokens of the streamed answer come from the scheduler."""
    is_emulated: bool = True
    """Whether the emulated engine answers it."""

    def body(self, model: str) -> dict[str, Any]:
        """For `create`."""
        asked = {"messages": _MESSAGES} if self.is_chat else {"prompt": _PROMPT}
        return {"model": model, **asked, **_GREEDY, **self.options}


def _both(name: str, **changes: Any) -> list[Asked]:
    return [Asked(f"{kind} {name}", kind == "chat", **changes) for kind in ("chat", "completion")]


def _format(kind: str, **more: Any) -> dict[str, Any]:
    return {"options": {"response_format": {"type": kind, **more}}, "is_emulated": False}


REQUESTS = (
    *_both("plain"),
    *_both("as long as it may be", options={"max_tokens": 12, "extra_body": {"ignore_eos": True}}),
    *_both("stop", options={"stop": ["E", "M", "e"]}),
    *_both("usage", options={"stream_options": {"include_usage": True}}),
    *_both("penalties", options={"frequency_penalty": 0.5, "presence_penalty": 0.5, "seed": 7, "user": "u"}),
    *_both("bias", options={"logit_bias": {"65": 5}}),
    *_both("JSON object", **_format("json_object")),
    *_both("JSON schema", **_format("json_schema", json_schema={"name": "town", "schema": _SCHEMA})),
    *_both("text format", options={"response_format": {"type": "text"}}),
    *_both("two choices", options={"n": 2}),
    Asked("completion ids", False, {"prompt": [65, 66, 67, 68]}),
    Asked("completion list", False, {"prompt": [_PROMPT, "Hello"]}),
    Asked("completion log probabilities", False, {"logprobs": 2}, is_emulated=False),
    Asked("completion of the tokens alone", False, {"logprobs": 0}, is_emulated=False),
    Asked("completion echo", False, {"echo": True}, is_direct=False, is_emulated=False),
    Asked(
        "chat log probabilities",
        True,
        {"logprobs": True, "top_logprobs": 2},
        is_emulated=False,
    ),
    Asked("chat without log probabilities", True, {"logprobs": False}),
    Asked("chat tools", True, {"tools": [_TOOL]}, is_emulated=False),
    Asked(
        "chat tool required",
        True,
        {"tools": [_TOOL], "tool_choice": "required", "max_tokens": 90},
        is_emulated=False,
    ),
    Asked("chat tools unused", True, {"tools": [_TOOL], "tool_choice": "none"}),
    Asked("chat completion tokens", True, {"max_tokens": openai.omit, "max_completion_tokens": 20}),
    Asked(
        "chat usage always",
        True,
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
)


async def ask(
    client: openai.AsyncOpenAI, asked: Asked, model: str, *, stream: bool
) -> tuple[str, dict[str, Any]]:
    """The request's id, and what a client has in the end: of each choice all that was said, and the usage."""
    body = asked.body(model)
    if not stream:
        body.pop("stream_options", None)
    # The method for completions knows no formats; the field is sent all the same.
    more = {"response_format": body.pop("response_format")} if "response_format" in body else {}
    more |= body.pop("extra_body", {})
    endpoint = client.chat.completions if asked.is_chat else client.completions
    said = await endpoint.create(**body, stream=stream, extra_body=more)  # type: ignore[call-overload]
    if not stream:
        return said._request_id, _gathered([said.model_dump()])
    rid = said.response.headers["x-request-id"]
    return rid, _gathered([chunk.model_dump() async for chunk in said])


async def differences(
    direct: openai.AsyncOpenAI,
    http: openai.AsyncOpenAI,
    requests: Sequence[Asked],
    *,
    model: str,
    opened: Container[str],
) -> list[tuple[Any, ...]]:
    """Answers that are not the same, and those whose tokens came another way than is said here.

    `opened` has the ids of requests whose tokens were to come from the scheduler, once they were asked.
    """
    found: list[tuple[Any, ...]] = []

    async def compare(asked: Asked, stream: bool) -> None:
        rid, said = await ask(direct, asked, model, stream=stream)
        _, other = await ask(http, asked, model, stream=stream)
        if (rid in opened) != (stream and asked.is_direct):
            found.append((asked.name, stream, "another way"))
        if not _alike(said, other):
            found.append((asked.name, stream, said, other))

    await asyncio.gather(*(compare(asked, stream) for asked in requests for stream in (True, False)))
    return found


def _gathered(parts: list[dict[str, Any]]) -> dict[str, Any]:
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for part in parts:
        usage = part.get("usage") or usage
        for choice in part["choices"]:
            known = choices.setdefault(choice.pop("index"), {})
            delta = choice.pop("delta", None) or choice.pop("message", None) or {}
            _add(known, choice | delta)
    details = (usage or {}).get("prompt_tokens_details")
    if details and isinstance(details.get("cached_tokens"), int):
        details["cached_tokens"] = (
            "a number"  # whoever comes later finds more, and who that is depends on time
        )
    return {"choices": choices, "usage": usage}


def _add(known: dict[str, Any], new: dict[str, Any]) -> None:
    """Texts and lists follow each other, as a client puts deltas together."""
    for name, value in new.items():
        if value is None:
            continue
        if isinstance(value, str) and name not in ("role", "finish_reason", "type"):
            text = "call" if name == "id" and _RANDOM_ID.match(value) else value
            known[name] = known.get(name, "") + text
        elif name == "tool_calls":
            calls = known.setdefault(name, {})
            for number, call in enumerate(value):
                _add(calls.setdefault(call.pop("index", number) or number, {}), call)
        elif isinstance(value, dict):
            _add(known.setdefault(name, {}), value)
        elif isinstance(value, list):
            known[name] = known.get(name, []) + value
        else:
            known[name] = value


def _alike(one: Any, other: Any) -> bool:
    """The same, with log probabilities to within a thousandth."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 1e-3
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
