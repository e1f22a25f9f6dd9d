"""Requests of OpenAI's Responses API and of Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

from conformity.case import COUNT, MESSAGES, MODEL, RESPONSES, Case, cases_of
from conformity.chat import CITY, LONG, NESTED, PIXEL, SAY, STREAM, WEATHER

BASE: dict[str, Any] = {"model": MODEL, "input": "Say something.", "max_output_tokens": 16, "temperature": 0}
TOOL = {"type": "function", "strict": True, **WEATHER}
OTHER = {"type": "function", "name": "other", "parameters": {"type": "object", "properties": {}}}
FORMAT = {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}
CALLED = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"name": "Bern"}'}
GIVEN_BACK = [*SAY, CALLED, {"type": "function_call_output", "call_id": "call_1", "output": "fine"}]


def said(*parts: Any) -> list[dict[str, Any]]:
    """One turn of these parts."""
    return [{"role": "user", "content": list(parts)}]


RESPONSES_FIELDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "streamed": STREAM,
    "instructions": {"instructions": "Be short."},
    "turns": {"input": [{"role": "developer", "content": "Be short."}, *SAY]},
    "typed turns": {"input": [{"type": "message", "role": "user", "content": "Hi."}]},
    "parts": {"input": said({"type": "input_text", "text": "Hi."})},
    "an answer before": {
        "input": [
            *SAY,
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
            },
            *SAY,
        ]
    },
    "a picture": {"input": said({"type": "input_image", "image_url": PIXEL, "detail": "auto"})},
    "json_schema": {"text": FORMAT, "max_output_tokens": 200, "schema_": CITY},
    "json_schema streamed": {"text": FORMAT, "max_output_tokens": 200, "schema_": CITY, **STREAM},
    "text format": {"text": {"format": {"type": "text"}}},
    "tools, none chosen": {"tools": [TOOL], "tool_choice": "none"},
    "tools, auto": {"tools": [TOOL], "tool_choice": "auto", "max_output_tokens": 200},
    "tools, auto, streamed": {"tools": [TOOL], "max_output_tokens": 200, **STREAM},
    "tools, required": {
        "tools": [TOOL],
        "tool_choice": "required",
        "max_output_tokens": 200,
        "schema_": CITY,
    },
    "tools, required, streamed": {
        "tools": [TOOL],
        "tool_choice": "required",
        "max_output_tokens": 200,
        **STREAM,
    },
    "tools, one named": {
        "tools": [OTHER, TOOL],
        "tool_choice": {"type": "function", "name": "weather"},
        "max_output_tokens": 200,
        "schema_": CITY,
    },
    "a tool's result": {"input": GIVEN_BACK, "tools": [TOOL]},
    "a tool's result, no tools": {"input": GIVEN_BACK},
    "reasoning": {"reasoning": {"effort": "low"}},
    "include": {"include": ["reasoning.encrypted_content"]},
    "store, metadata, user, truncation": {
        "store": False,
        "metadata": {"a": "b"},
        "user": "me",
        "truncation": "disabled",
    },
    "parallel_tool_calls": {"parallel_tool_calls": False},
    "top_p": {"temperature": 1, "top_p": 0.01},
    "top_logprobs": {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
}
RESPONSES_REFUSED: dict[str, dict[str, Any]] = {
    "input missing": {"input": ...},
    "input empty": {"input": []},
    "input is a number": {"input": 5},
    "item of unknown type": {"input": [*SAY, {"type": "nonsense"}]},
    "picture by address": {"input": said({"type": "input_image", "image_url": "http://127.0.0.1:9/x"})},
    "model unknown": {"model": "no-such-model"},
    "max_output_tokens is 0": {"max_output_tokens": 0},
    "max_output_tokens beyond the context": {"max_output_tokens": 10_000_000},
    "temperature below 0": {"temperature": -1},
    "top_p above 1": {"top_p": 2},
    "previous_response_id": {"previous_response_id": "resp_1"},
    "background": {"background": True},
    "conversation": {"conversation": "conv_1"},
    "stored prompt": {"prompt": {"id": "pmpt_1"}},
    "tools, no name": {"tools": [{"type": "function"}]},
    "tools, required of none": {"tool_choice": "required"},
    "tools, named one is not there": {"tools": [TOOL], "tool_choice": {"type": "function", "name": "nobody"}},
    "tools, of the platform": {"tools": [{"type": "web_search"}]},
    "text format unknown": {"text": {"format": {"type": "nonsense"}}},
    "text format of a nonsense schema": {
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nonsense"}}}
    },
    "truncation unknown": {"truncation": "nonsense"},
    "too long": {"input": LONG},
    "too long, streamed": {"input": LONG, "stream": True},
}

CLAUDE: dict[str, Any] = {"model": MODEL, "messages": SAY, "max_tokens": 4, "temperature": 0}
CLAUDE_TOOL = {"name": "weather", "description": "The weather of a city.", "input_schema": CITY}
CLAUDE_OTHER = {"name": "other", "input_schema": {"type": "object", "properties": {}}}
PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL.partition(",")[2]},
}
USED = [
    *SAY,
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"name": "Bern"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "fine"}]},
]
MESSAGES_FIELDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "streamed": STREAM,
    "system": {"system": "Be short."},
    "system parts": {
        "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    },
    "parts": {"messages": said({"type": "text", "text": "Hi."})},
    "cached part": {
        "messages": said({"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}})
    },
    "several turns": {"messages": [*SAY, {"role": "assistant", "content": "Yes."}, *SAY]},
    "a picture": {"messages": said({"type": "text", "text": "What?"}, PICTURE)},
    "stop_sequences": {"stop_sequences": ["\u2603"]},
    "top_k, top_p": {"temperature": 1, "top_k": 1, "top_p": 0.9},
    "metadata": {"metadata": {"user_id": "me"}},
    "thinking disabled": {"thinking": {"type": "disabled"}},
    "tools, auto": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "auto"}, "max_tokens": 200},
    "tools, auto, streamed": {"tools": [CLAUDE_TOOL], "max_tokens": 200, **STREAM},
    "tools, none": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "none"}},
    "tools, any": {
        "tools": [CLAUDE_TOOL],
        "tool_choice": {"type": "any"},
        "max_tokens": 200,
        "schema_": CITY,
    },
    "tools, any, streamed": {
        "tools": [CLAUDE_TOOL],
        "tool_choice": {"type": "any"},
        "max_tokens": 200,
        **STREAM,
    },
    "tools, one named": {
        "tools": [CLAUDE_OTHER, CLAUDE_TOOL],
        "tool_choice": {"type": "tool", "name": "weather"},
        "max_tokens": 200,
        "schema_": CITY,
    },
    "a tool's result": {"messages": USED, "tools": [CLAUDE_TOOL]},
    "json_schema": {
        "output_config": {"format": {"type": "json_schema", "schema": NESTED}},
        "max_tokens": 200,
        "schema_": NESTED,
    },
}
MESSAGES_REFUSED: dict[str, dict[str, Any]] = {
    "max_tokens missing": {"max_tokens": ...},
    "max_tokens is 0": {"max_tokens": 0},
    "max_tokens beyond the context": {"max_tokens": 10_000_000},
    "messages missing": {"messages": ...},
    "messages empty": {"messages": []},
    "role unknown": {"messages": [{"role": "nonsense", "content": "hi"}]},
    "role system": {"messages": [{"role": "system", "content": "hi"}, *SAY]},
    "content missing": {"messages": [{"role": "user"}]},
    "part of unknown type": {"messages": said({"type": "nonsense"})},
    "picture by address": {
        "messages": said({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:9/x"}})
    },
    "model unknown": {"model": "no-such-model"},
    "temperature below 0": {"temperature": -1},
    "tools, no name": {"tools": [{"input_schema": CITY}]},
    "tools, named one is not there": {
        "tools": [CLAUDE_TOOL],
        "tool_choice": {"type": "tool", "name": "nobody"},
    },
    "tool_choice unknown": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "nonsense"}},
    "too long": {"messages": [{"role": "user", "content": LONG}]},
    "too long, streamed": {"messages": [{"role": "user", "content": LONG}], "stream": True},
}
COUNTED: dict[str, dict[str, Any]] = {
    "plain": {},
    "system and tools": {"system": "Be short.", "tools": [CLAUDE_TOOL]},
    "a picture": {"messages": said({"type": "text", "text": "What?"}, PICTURE)},
    "a tool's result": {"messages": USED, "tools": [CLAUDE_TOOL]},
    "messages empty": {"messages": []},
    "model unknown": {"model": "no-such-model"},
}


def cases() -> list[Case]:
    """All of them."""
    counted = {"model": MODEL, "messages": SAY}
    return [
        *cases_of("responses", RESPONSES, BASE, RESPONSES_FIELDS),
        *cases_of("responses refused", RESPONSES, BASE, RESPONSES_REFUSED),
        *cases_of("messages", MESSAGES, CLAUDE, MESSAGES_FIELDS),
        *cases_of("messages refused", MESSAGES, CLAUDE, MESSAGES_REFUSED),
        *cases_of("count_tokens", COUNT, counted, COUNTED),
        Case(name="batches", path=f"{MESSAGES}/batches", body={}),
        Case(name="stored answer", path=f"{RESPONSES}/resp_1", method="GET"),
        Case(name="wrong key on messages", path=MESSAGES, body=CLAUDE, headers={"Authorization": "Bearer x"}),
        Case(name="wrong key on responses", path=RESPONSES, body=BASE, headers={"Authorization": "Bearer x"}),
    ]
