"""Requests of /v1/chat/completions: OpenAI's fields, what stock clients send, and what is refused."""

from __future__ import annotations

from typing import Any

from conformity.case import CHAT, MODEL, Case, cases_of

SAY = [{"role": "user", "content": "Say something."}]
BASE: dict[str, Any] = {"model": MODEL, "messages": SAY, "max_tokens": 4, "temperature": 0}
CITY = {
    "type": "object",
    "properties": {"name": {"enum": ["Bern", "Oslo"]}, "capital": {"type": "boolean"}},
    "required": ["name", "capital"],
    "additionalProperties": False,
}
"""Of few values: a model of random weights comes to an end of it, too."""
NESTED = {
    "type": "object",
    "properties": {"of": {"$ref": "#/$defs/city"}, "kind": {"const": "answer"}},
    "required": ["of", "kind"],
    "additionalProperties": False,
    "$defs": {"city": CITY},
}
WEATHER = {"name": "weather", "description": "The weather of a city.", "parameters": CITY}
TOOL = {"type": "function", "function": WEATHER}
OTHER = {
    "type": "function",
    "function": {"name": "other", "parameters": {"type": "object", "properties": {}}},
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"name": "Bern"}'}}
    ],
}
GIVEN_BACK = [*SAY, CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "fine"}]
STREAM = {"stream": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
LONG = "word " * 140_000
"""More tokens than the context has, of both models."""


def said(*parts: Any) -> list[dict[str, Any]]:
    """One turn of these parts."""
    return [{"role": "user", "content": list(parts)}]


def turn(role: str, content: Any = "Be short.") -> dict[str, Any]:
    """One turn."""
    return {"role": role, "content": content}


FIELDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "streamed": STREAM,
    "streamed with usage": USAGE,
    "streamed with usage all along": {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    "stream_options without stream": {"stream_options": {"include_usage": True}},
    "system": {"messages": [turn("system"), *SAY]},
    "developer": {"messages": [turn("developer"), *SAY]},
    "several turns": {"messages": [*SAY, turn("assistant", "Yes."), *SAY]},
    "last turn is the assistant's": {"messages": [*SAY, turn("assistant", "Yes")]},
    "continue the last turn": {"messages": [*SAY, turn("assistant", "Yes")], "continue_final_message": True},
    "text parts": {"messages": said({"type": "text", "text": "Say"}, {"type": "text", "text": "this."})},
    "max_completion_tokens": {"max_tokens": ..., "max_completion_tokens": 3},
    "both limits": {"max_tokens": 5, "max_completion_tokens": 3},
    "n": {"n": 2},
    "n streamed": {"n": 2, **USAGE},
    "n is 1": {"n": 1},
    "seed": {"seed": 7},
    "top_p, top_k, min_p": {"temperature": 1, "top_p": 0.01, "top_k": 1, "min_p": 0.1},
    "penalties": {"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.1},
    "logit_bias": {"logit_bias": {"5": -100, "7": 1}},
    "stop text": {"stop": "\u2603\u2603"},
    "stop list": {"stop": ["\u2603", "\u2604"]},
    "stop_token_ids": {"stop_token_ids": [1], "ignore_eos": True},
    "min_tokens": {"min_tokens": 2},
    "ignore_eos": {"ignore_eos": True},
    "user, metadata, store, service_tier": {
        "user": "me",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
    },
    "logprobs": {"logprobs": True},
    "top_logprobs": {"logprobs": True, "top_logprobs": 2},
    "top_logprobs streamed": {"logprobs": True, "top_logprobs": 2, **STREAM},
    "top_logprobs without logprobs": {"top_logprobs": 2},
    "json_object": {"response_format": {"type": "json_object"}, "max_tokens": 6},
    "text format": {"response_format": {"type": "text"}},
    "json_schema": {"response_format": FORMAT, "max_tokens": 200, "schema_": CITY},
    "json_schema streamed": {"response_format": FORMAT, "max_tokens": 200, "schema_": CITY, **USAGE},
    "json_schema nested": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": NESTED}},
        "max_tokens": 200,
        "schema_": NESTED,
    },
    "json_schema cut short": {"response_format": FORMAT, "max_tokens": 3},
    "regex": {"regex": "(yes|no)", "max_tokens": 20},
    "ebnf": {"ebnf": 'root ::= "yes" | "no"', "max_tokens": 20},
    "tools, none chosen": {"tools": [TOOL], "tool_choice": "none"},
    "tools, auto": {"tools": [TOOL], "tool_choice": "auto", "max_tokens": 200},
    "tools, auto, streamed": {"tools": [TOOL], "max_tokens": 200, **STREAM},
    "tools, required": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200, "schema_": CITY},
    "tools, required, streamed": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200, **STREAM},
    "tools, one named": {
        "tools": [OTHER, TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "max_tokens": 200,
        "schema_": CITY,
    },
    "tools, one named, streamed": {
        "tools": [OTHER, TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "max_tokens": 200,
        **USAGE,
    },
    "tools, named one is not there": {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "nobody"}},
    },
    "tools, required of none": {"tool_choice": "required"},
    "tools, unknown choice": {"tools": [TOOL], "tool_choice": "nonsense"},
    "tools, empty list": {"tools": []},
    "tools, parallel": {"tools": [TOOL], "parallel_tool_calls": False, "tool_choice": "none"},
    "tools, strict": {
        "tools": [{"type": "function", "function": {**WEATHER, "strict": True}}],
        "tool_choice": "none",
    },
    "tools, no function": {"tools": [{"type": "function"}]},
    "tools, schema is nonsense": {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}],
        "tool_choice": "required",
    },
    "a tool's result": {"messages": GIVEN_BACK, "tools": [TOOL]},
    "a tool's result, no tools": {"messages": GIVEN_BACK},
    "arguments that are no JSON": {
        "messages": [
            *SAY,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{"}}
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "fine"},
        ]
    },
    "reasoning_effort": {"reasoning_effort": "low"},
    "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
    "a picture": {
        "messages": said(
            {"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": PIXEL}}
        )
    },
    "input_ids": {"input_ids": [5, 6, 7]},
    "return_token_ids": {"return_token_ids": True},
    "return_cached_tokens_details": {"return_cached_tokens_details": True},
    "unknown field": {"no_such_field": 5},
    "null fields": {
        "stop": None,
        "tools": None,
        "n": None,
        "seed": None,
        "response_format": None,
        "top_p": None,
    },
}

REFUSED: dict[str, dict[str, Any]] = {
    "model missing": {"model": ...},
    "model empty": {"model": ""},
    "model unknown": {"model": "no-such-model"},
    "model is a number": {"model": 5},
    "messages missing": {"messages": ...},
    "messages empty": {"messages": []},
    "messages is a text": {"messages": "hi"},
    "role unknown": {"messages": [turn("nonsense")]},
    "role missing": {"messages": [{"content": "hi"}]},
    "content missing": {"messages": [{"role": "user"}]},
    "content is a number": {"messages": [turn("user", 5)]},
    "content is null": {"messages": [turn("user", None)]},
    "part of unknown type": {"messages": said({"type": "nonsense"})},
    "part without text": {"messages": said({"type": "text"})},
    "picture by address": {
        "messages": said({"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x"}})
    },
    "picture of a file": {"messages": said({"type": "image_url", "image_url": {"url": "file:///etc/x"}})},
    "temperature is a text": {"temperature": "hot"},
    "temperature below 0": {"temperature": -1},
    "top_p above 1": {"top_p": 2},
    "top_p is 0": {"top_p": 0},
    "n is 0": {"n": 0},
    "n is huge": {"n": 10_000},
    "max_tokens is 0": {"max_tokens": 0},
    "max_tokens below 0": {"max_tokens": -1},
    "max_tokens beyond the context": {"max_tokens": 10_000_000},
    "max_tokens is a text": {"max_tokens": "4"},
    "min_tokens above max_tokens": {"min_tokens": 9, "max_tokens": 4},
    "top_logprobs is huge": {"logprobs": True, "top_logprobs": 1000},
    "logit_bias of a foreign token": {"logit_bias": {"99999999": 1}},
    "logit_bias beyond 100": {"logit_bias": {"5": 101}},
    "stop is a number": {"stop": 5},
    "stop_token_ids of a foreign token": {"stop_token_ids": [99_999_999]},
    "seed is a text": {"seed": "x"},
    "stream is a text": {"stream": "yes"},
    "response_format unknown": {"response_format": {"type": "nonsense"}},
    "response_format without schema": {"response_format": {"type": "json_schema"}},
    "response_format of a nonsense schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"type": "nonsense"}},
        }
    },
    "regex does not compile": {"regex": "((("},
    "tools is an object": {"tools": {}},
    "functions": {"functions": [WEATHER]},
    "too long": {"messages": [turn("user", LONG)]},
    "too long, streamed": {"messages": [turn("user", LONG)], "stream": True},
}


def cases() -> list[Case]:
    """All of them."""
    return [*cases_of("chat", CHAT, BASE, FIELDS), *cases_of("chat refused", CHAT, BASE, REFUSED)]
