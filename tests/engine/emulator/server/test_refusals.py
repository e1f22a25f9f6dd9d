"""What cannot be served is refused in OpenAI's shape, naming the field."""

from __future__ import annotations

from typing import Any

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/generate"
SMALL_POOL_TOKENS = 2000
HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def schema(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": of}}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
        ),
        (
            CHAT,
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]},
            "messages",
        ),
        (CHAT, {"messages": HELLO, "response_format": {"type": "json_schema"}}, "response_format"),
        (CHAT, {"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        (CHAT, {"messages": HELLO, "max_completion_tokens": "many"}, "max_completion_tokens"),
        (CHAT, {"messages": HELLO, "temperature": -1}, "temperature"),
        (CHAT, {"messages": HELLO, "top_p": 1.5}, "top_p"),
        (CHAT, {"messages": HELLO, "tools": [{"type": "function"}]}, "tools[0].function"),
        (CHAT, {"messages": HELLO, "tools": [{}], "tool_choice": "required"}, "tools[0].function"),
        (CHAT, {"messages": HELLO, "functions": [{}]}, "functions"),
        (CHAT, {"messages": HELLO, "response_format": {"type": "xml"}}, "response_format.type"),
        (CHAT, {"messages": HELLO, "response_format": schema({"pattern": "a+"})}, "response_format"),
        (CHAT, {"messages": HELLO, "response_format": schema({"$ref": "#/$defs/X"})}, "response_format"),
        (CHAT, {"messages": HELLO, "response_format": schema({"$ref": "#"})}, "response_format"),
        (CHAT, {"messages": HELLO, "response_format": schema({"minItems": 10**9})}, "response_format"),
        (CHAT, {"messages": HELLO, "response_format": schema({"minLength": 10**9})}, "response_format"),
        (CHAT, {"messages": HELLO, "response_format": schema({"type": "word"})}, "response_format"),
        (CHAT, {"messages": HELLO, "tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        (CHAT, {"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        (
            CHAT,
            {"messages": HELLO, "tools": [TOOL], "tool_choice": {"function": {"name": "other"}}},
            "tool_choice",
        ),
        (CHAT, {"messages": [{"role": "poet", "content": "x"}]}, "messages[0].role"),
        (CHAT, {"messages": HELLO, "n": 129}, "n"),
        (CHAT, {"messages": HELLO, "regex": "a+"}, "regex"),
        (COMPLETIONS, {"prompt": "x", "ebnf": "root ::= x"}, "ebnf"),
        (GENERATE, {"text": "x", "sampling_params": {"regex": "a"}}, "sampling_params.regex"),
        (CHAT, {"messages": HELLO, "stream": "yes"}, "stream"),
        (CHAT, {"messages": HELLO, "stop": ""}, "stop"),
        (CHAT, {"messages": HELLO, "stop": ["a"] * 257}, "stop"),
        (CHAT, {"messages": HELLO, "stop": ["a" * 1025]}, "stop[0]"),
        (COMPLETIONS, {"prompt": [1] * 1_048_577}, "prompt"),
        (COMPLETIONS, {"prompt": [[1] * 1_048_576, [1]]}, "prompt"),
        (GENERATE, {"input_ids": [1] * 1_048_577}, "input_ids"),
        (CHAT, {"messages": HELLO, "min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        (CHAT, {"messages": HELLO, "custom_params": {"pdmuxd_tenant": 5}}, "custom_params.pdmuxd_tenant"),
        (COMPLETIONS, {}, "prompt"),
        (COMPLETIONS, {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (COMPLETIONS, {"prompt": {}}, "prompt"),
        (COMPLETIONS, {"prompt": [1, -1]}, "prompt[1]"),
        (COMPLETIONS, {"prompt": [2**31]}, "prompt[0]"),
        (COMPLETIONS, {"prompt": ["a", 5]}, "prompt[1]"),
        (COMPLETIONS, {"prompt": [[1], []]}, "prompt[1]"),
        (COMPLETIONS, {"prompt": ["a"] * 129}, "prompt"),
        (COMPLETIONS, {"prompt": ["x"] * 100, "n": 2}, "n"),
        (GENERATE, {}, "text"),
        (GENERATE, {"text": ["x", "y"]}, "text"),
        (GENERATE, {"input_ids": [[1], [2]]}, "input_ids"),
        (GENERATE, {"input_ids": ["x"]}, "input_ids[0]"),
        (GENERATE, {"text": "x", "sampling_params": [{}]}, "sampling_params"),
        (GENERATE, {"text": "x", "sampling_params": {"n": 2}}, "sampling_params.n"),
        (
            GENERATE,
            {"text": "x", "sampling_params": {"max_new_tokens": 0}},
            "sampling_params.max_new_tokens",
        ),
        (GENERATE, {"text": "x", "return_logprob": True}, "return_logprob"),
        (GENERATE, {"input_embeds": [[0.5]], "text": "x"}, "input_embeds"),
    ],
)
async def test_a_body_is_refused_when_a_field_is_wrong(
    server: Any, path: str, body: dict[str, Any], param: str
) -> None:
    response = await server.post(path, **body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert param.partition("[")[0].rpartition(".")[2] in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b'{"prompt": "\xff"}', b"[" * 100_000])
async def test_a_body_is_refused_when_it_is_not_an_object(server: Any, body: bytes) -> None:
    for path in (CHAT, COMPLETIONS, GENERATE, "/abort_request"):
        response = await server.client.post(path, content=body)
        assert response.status_code == 400
        assert response.json()["error"]["message"]


async def test_fields_are_ignored_when_they_cannot_change_the_answer(server: Any) -> None:
    response = await server.post(
        CHAT,
        messages=HELLO,
        max_tokens=1,
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice="none",
        response_format={"type": "text"},
        frequency_penalty=0.5,
        user="someone",
        lora_path=None,
        a_field_of_tomorrow={"x": [1]},
        seed=None,
        stop=None,
        max_completion_tokens=None,
        stream_options=None,
    )
    assert response.status_code == 200


async def test_a_model_is_not_found_when_it_is_not_the_served_one(server: Any) -> None:
    response = await server.post(CHAT, model="gpt-17", messages=HELLO)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert "llama-8b" in error["message"]
    for model in ("llama-8b", "default", None):
        assert (await server.post(CHAT, model=model, messages=HELLO, max_tokens=1)).status_code == 200


async def test_a_prompt_is_refused_with_both_numbers_when_it_is_over_the_context(server: Any) -> None:
    response = await server.post(COMPLETIONS, prompt=list(range(131_073)))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "131073" in error["message"]
    assert "131072" in error["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_is_refused_whole_when_one_prompt_can_never_fit_into_the_pool(
    small_server: Any, stream: bool
) -> None:
    fits, never = [1] * 10, [1] * SMALL_POOL_TOKENS
    response = await small_server.post(COMPLETIONS, prompt=[fits, never], stream=stream)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "kv_capacity_exceeded")
    assert str(SMALL_POOL_TOKENS) in error["message"]
    await small_server.driver.drain(60.0)
    assert [request.phase.value for request in small_server.ended] == ["failed", "aborted"]


async def test_a_key_is_demanded_when_a_path_is_not_the_health_check(slow_server: Any) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic engine-key"}):
        slow_server.client.headers.pop("authorization", None)
        for path in ("/v1/models", "/server_info", "/nowhere"):
            response = await slow_server.client.get(path, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["code"] == "invalid_api_key"
        assert (await slow_server.client.get("/health", headers=headers)).status_code == 200


async def test_an_unknown_path_or_method_is_refused_in_the_same_shape_when_asked_for(server: Any) -> None:
    missing = await server.client.get("/v1/embeddings")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    wrong = await server.client.get(CHAT)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_a_body_is_refused_when_it_is_too_large(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdmuxd.engine.emulator.server.app.MAX_BODY_BYTES", 100)
    response = await server.post(COMPLETIONS, prompt="x" * 200)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
