"""Answers of SGLang 0.5.23 as it gave them on the CPU (2026-11-25), and what clients get instead."""

import json

import pytest

from pdmuxd.daemon.gateway.engine_errors import engine_error, refused_in_stream

CHAT = "/v1/chat/completions"
TOO_LONG = "The input (9000 tokens) is longer than the model's context length (4096 tokens)."
REQUESTED = (
    "Requested token count exceeds the model's maximum context length of 131072 tokens. "
    "You requested a total of 131092 tokens: 20 tokens from the input messages."
)
PARSED = (
    "1 validation error:\n  {'type': 'int_parsing_size', 'loc': ('body', 'messages', 0, 'role'), "
    "'msg': 'Unable to parse input string as an integer', 'input': 5}"
)


VALIDATED = (
    "2 validation errors:\n  {'type': 'value_error', 'loc': ('body', 'messages', 0, "
    "'function-after[validate_parts(), Param]', 'role'), 'msg': \"Value error, 'role' must be 'user'.\"}"
)


def old_form(message, status=400):
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, old_form("top_p must be in (0, 1], got 2.0."), (400, "invalid_value", "top_p")),
        (400, old_form(TOO_LONG), (400, "context_length_exceeded", "messages")),
        (400, {"error": {"message": TOO_LONG}}, (400, "context_length_exceeded", "messages")),
        (400, old_form(REQUESTED), (400, "context_length_exceeded", "messages")),
        (400, old_form(PARSED), (400, "invalid_value", "messages[0].role")),
        (400, old_form(VALIDATED), (400, "invalid_value", "messages[0].role")),
        (422, {"detail": "wrong"}, (400, "invalid_value", None)),
        (400, {"error": "unknown field `x`"}, (400, "invalid_value", None)),
        (400, {"type": "error", "error": {"type": "a", "message": "b"}}, (400, "invalid_value", None)),
        (500, old_form("Failed to compile ebnf grammar: nest layer", 500), (400, "invalid_value", "ebnf")),
        (500, old_form("Internal server error: 'x'", 500), (500, "engine_error", None)),
        (404, old_form("no such model", 404), (404, "not_found", None)),
    ],
)
def test_every_form_becomes_one(status, body, expected):
    error = engine_error(status, json.dumps(body).encode(), CHAT)
    assert (error.status, error.code, error.param) == expected
    assert str(error)


@pytest.mark.parametrize(
    ("path", "message", "param"),
    [
        ("/v1/messages", "messages.1.content.str: Input should be a valid string; x", "messages[1].content"),
        ("/v1/messages", "tools.0.custom.type: Input should be 'custom'", "tools[0].type"),
        ("/v1/messages", "tools.0.custom.name: Field required", "tools[0].name"),
        ("/v1/messages", "tool_choice references tool 'x' but it is not in the tools list", "tool_choice"),
        ("/v1/responses", 'tool_choice="required" requires at least one tool', "tool_choice"),
        (CHAT, "Tool 'x' not found in tools list.", "tool_choice"),
        (CHAT, "[{'type': 'x', 'loc': ('body', 'tool_choice', 'ToolChoice'), 'msg': 'No'}]", "tool_choice"),
        ("/v1/messages", "system.list[tagged-union[TextBlock]].0: Input", "system"),
        ("/v1/completions", "Failed to compile json grammar: Expecting property name", "json_schema"),
        (CHAT, "Failed to compile json grammar: enum array must not be empty", "response_format"),
        (CHAT, "min_new_tokens must be in [0, max_new_tokens(3)], got 4.", "min_tokens"),
        ("/generate", "min_new_tokens must be in [0, 3], got 4.", "sampling_params.min_new_tokens"),
        (CHAT, "Tools cannot be empty if tool choice is set to a specific tool.", "tool_choice"),
        (CHAT, "Tool 0 function has invalid 'parameters' schema: [] should be non-empty", "tools"),
        (CHAT, "Value error, invalid reasoning effort: 'x'", "reasoning_effort"),
        (CHAT, "something else is wrong", None),
    ],
)
def test_a_field_that_only_the_words_name_is_found(path, message, param):
    assert engine_error(400, json.dumps(old_form(message)).encode(), path).param == param


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("/v1/messages", {"type": "error", "error": {"type": "x", "message": TOO_LONG}}),
        ("/v1/responses", {"type": "response.failed", "response": {"error": {"message": TOO_LONG}}}),
    ],
)
def test_a_stream_that_ends_before_its_first_token_says_why(path, event):
    stream = b"event: x\ndata: {}\n\nevent: y\ndata: " + json.dumps(event).encode() + b"\n\n"
    error = refused_in_stream(stream, path)
    assert error is not None
    assert (error.status, error.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    "stream",
    [b"", b'data: {"type": "error", "error": {"message": "it broke"}}\n\n', b'data: "error" "message"\n\n'],
)
def test_a_stream_that_ends_for_another_reason_is_passed_on(stream):
    assert refused_in_stream(stream, "/v1/messages") is None


@pytest.mark.parametrize("body", [b"Internal Server Error", b"", b"\xff\xfe", b"[" * 5000, b"[]", b"7"])
def test_an_answer_that_is_no_json_has_a_message_too(body):
    error = engine_error(500, body, CHAT)
    assert (error.status, error.code) == (500, "engine_error")
    assert str(error) or not body


def test_a_token_that_is_not_the_tokenizers_is_the_labels():
    body = b'{"object":"error","message":"Token ID 511 is out of vocabulary (vocab size: 259)","code":400}'
    assert engine_error(400, body, "/v1/score").param == "label_token_ids"


@pytest.mark.parametrize("message", [TOO_LONG, REQUESTED])
def test_a_prompt_that_is_too_long_is_said_in_the_words_that_clients_look_for(message):
    """LiteLLM's `is_error_str_context_window_exceeded` looks for these in lower case."""
    said = str(engine_error(400, json.dumps(old_form(message)).encode(), CHAT)).lower()
    assert "this model's maximum context length is" in said
    assert any(number in said for number in ("4096", "131072"))
