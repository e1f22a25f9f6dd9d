"""The emulator says yes: JSON that validates, calls of tools, several choices, log probabilities."""

from __future__ import annotations

import datetime
import enum
import json
import math
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.emulator.server.json_filler import MAX_DEPTH, json_for

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES = "/v1/responses"
HELLO = [{"role": "user", "content": "hello"}]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Node(BaseModel):
    name: str
    children: list[Node]
    parent: Node | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]


class Everything(BaseModel):
    title: str = Field(min_length=12, max_length=14)
    colour: Colour
    day: datetime.date
    at: datetime.datetime
    ratio: float = Field(gt=0, lt=1)
    below: int = Field(lt=-5)
    even: int = Field(multiple_of=4, ge=6)
    names: list[str] = Field(min_length=3, max_length=4)
    pair: tuple[int, str]
    either: Cat | Dog
    maybe: int | None
    flags: dict[str, bool]
    is_on: bool = True
    animal: Annotated[Cat | Dog, Field(discriminator="kind")]
    tags: set[int] = Field(min_length=5)


@pytest.mark.parametrize("model", [Node, Cat, Everything, Colour, list[Cat], dict[str, int], int | None])
def test_the_value_validates_against_the_model_that_the_schema_is_of(model: Any) -> None:
    adapter = TypeAdapter(model)
    adapter.validate_json(json_for(adapter.json_schema(), "response_format"))


def test_all_of_adds_up() -> None:
    one = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    two = {"$ref": "#/$defs/B"}
    other = {"type": "object", "properties": {"b": {"const": 7}}, "required": ["b"]}
    made = json.loads(json_for({"allOf": [one, two], "$defs": {"B": other}}, "x"))
    assert made == {"a": 1, "b": 7}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"A": {"$ref": "#/$defs/A"}}, "allOf": [{"$ref": "#/$defs/A"}]},
        {"anyOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"anyOf": 5},
        {"enum": 5},
        {"properties": 5},
        {"items": 5},
        {"allOf": 5},
        {"allOf": [5]},
        {"$ref": "https://example.org/schema"},
        5,
        None,
    ],
)
def test_a_schema_that_no_value_can_be_made_for_is_refused(schema: Any) -> None:
    with pytest.raises(RequestError) as refused:
        json_for(schema, "response_format")
    assert (refused.value.status, refused.value.param) == (400, "response_format")


def test_a_schema_as_deep_as_is_allowed_is_answered() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(MAX_DEPTH):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    json_for(schema, "x")
    with pytest.raises(RequestError, match=f"more than {MAX_DEPTH} levels"):
        json_for({"properties": {"a": schema}, "required": ["a"]}, "x")


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


FORMAT = {"type": "json_schema", "json_schema": {"name": "cat", "schema": Cat.model_json_schema()}}


async def test_a_chat_in_a_schema_is_whole_or_streamed_the_same(server: Any) -> None:
    whole = (await server.post(CHAT, messages=HELLO, response_format=FORMAT, max_tokens=200)).json()
    text = whole["choices"][0]["message"]["content"]
    assert Cat.model_validate_json(text).lives == 1
    assert whole["choices"][0]["finish_reason"] == "stop"
    events = await server.events(CHAT, messages=HELLO, response_format=FORMAT, max_tokens=200)
    said = [event["choices"][0] for event in events]
    assert "".join(choice["delta"].get("content", "") for choice in said) == text
    assert len(said) > 5, "token by token"


async def test_json_is_cut_and_said_to_be_when_max_tokens_is_too_small(server: Any) -> None:
    whole = (await server.post(CHAT, messages=HELLO, response_format=FORMAT, max_tokens=3)).json()
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    "choice", [None, "auto", "required", {"type": "function", "function": {"name": "b"}}]
)
async def test_a_tool_is_called_whole_and_streamed(server: Any, choice: Any) -> None:
    asked = {"messages": HELLO, "tools": [tool("a"), tool("b")], "tool_choice": choice, "max_tokens": 99}
    whole = (await server.post(CHAT, **asked)).json()["choices"][0]
    (call,) = whole["message"]["tool_calls"]
    assert (whole["finish_reason"], whole["message"]["content"]) == ("tool_calls", "")
    assert call["function"]["name"] == ("b" if isinstance(choice, dict) else "a")
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    events = [event["choices"][0] for event in await server.events(CHAT, **asked)]
    first, *deltas = [each for event in events for each in event["delta"].get("tool_calls") or ()]
    assert (first["function"]["name"], first["id"][:5]) == (call["function"]["name"], "call_")
    assert "".join(each["function"]["arguments"] for each in deltas) == call["function"]["arguments"]
    assert events[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("asked", [{"tool_choice": "none"}, {"messages": [*HELLO, {"role": "tool"}]}])
async def test_no_tool_is_called_when_none_is_wanted_or_one_has_answered(server: Any, asked: Any) -> None:
    body = {"messages": HELLO, "tools": [tool("a")], "max_tokens": 5, **asked}
    choice = (await server.post(CHAT, **body)).json()["choices"][0]
    assert choice["message"]["tool_calls"] is None
    assert choice["message"]["content"]


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "a"}])
async def test_a_message_uses_a_tool_whole_and_streamed(server: Any, choice: Any) -> None:
    used = {"name": "a", "input_schema": tool("a")["function"]["parameters"]}
    asked = {"messages": HELLO, "max_tokens": 99, "tools": [used], "tool_choice": choice}
    whole = (await server.post(MESSAGES, **asked)).json()
    (block,) = whole["content"]
    assert (whole["stop_reason"], block["type"], block["name"]) == ("tool_use", "tool_use", "a")
    assert block["input"].keys() == {"city"}
    response = await server.post(MESSAGES, stream=True, **asked)
    data = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    parts = [each["delta"]["partial_json"] for each in data if each["type"] == "content_block_delta"]
    assert json.loads("".join(parts)) == block["input"]
    result = [{"type": "tool_result", "tool_use_id": block["id"], "content": "sunny"}]
    turns = [*HELLO, {"role": "assistant", "content": [block]}, {"role": "user", "content": result}]
    if choice["type"] == "auto":
        after = (await server.post(MESSAGES, **{**asked, "messages": turns})).json()
        assert after["content"][0]["type"] == "text"


@pytest.mark.parametrize("choice", [None, "auto", "required", {"type": "function", "name": "a"}])
async def test_a_response_calls_a_function_whole_and_streamed(server: Any, choice: Any) -> None:
    asked = {"input": "Hi.", "tools": [{"type": "function", **tool("a")["function"]}], "tool_choice": choice}
    whole = (await server.post(RESPONSES, **asked)).json()
    (call,) = whole["output"]
    assert (whole["status"], call["type"], call["name"]) == ("completed", "function_call", "a")
    assert json.loads(call["arguments"]).keys() == {"city"}
    assert whole["tools"] == asked["tools"]
    response = await server.post(RESPONSES, stream=True, **asked)
    data = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    parts = [each["delta"] for each in data if each["type"] == "response.function_call_arguments.delta"]
    assert "".join(parts) == call["arguments"]
    assert data[-1]["response"]["output"][0]["arguments"] == call["arguments"]
    assert [each["sequence_number"] for each in data] == list(range(len(data)))
    given_back = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    turns = [{"role": "user", "content": "Hi."}, call, given_back]
    if choice in (None, "auto"):
        after = (await server.post(RESPONSES, **{**asked, "input": turns})).json()
        assert after["output"][0]["type"] == "message"


async def test_a_function_that_nobody_can_call_is_refused_by_name(server: Any) -> None:
    for tools, choice, param in (
        ([{"type": "function"}], "auto", "tools[0]"),
        ([{"type": "web_search"}], "required", "tool_choice"),
        ([], {"type": "function", "name": "b"}, "tool_choice"),
        ([5], "auto", "tools[0]"),
    ):
        response = await server.post(RESPONSES, input="Hi.", tools=tools, tool_choice=choice)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_each_choice_has_a_text_of_its_own_and_the_prompt_counts_once(server: Any) -> None:
    one = (await server.post(COMPLETIONS, prompt="a b c", max_tokens=6)).json()
    three = (await server.post(COMPLETIONS, prompt="a b c", max_tokens=6, n=3)).json()
    assert [choice["index"] for choice in three["choices"]] == [0, 1, 2]
    assert len({choice["text"] for choice in three["choices"]}) == 3
    assert three["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert three["usage"]["completion_tokens"] == 18


async def test_the_prompt_stands_before_the_answer_when_it_is_to_be_echoed(server: Any) -> None:
    asked = {"prompt": 'say "it"', "max_tokens": 4, "echo": True}
    text = (await server.post(COMPLETIONS, **asked)).json()["choices"][0]["text"]
    assert text.startswith('say "it"')
    assert len(text) > len('say "it"')
    events = await server.events(COMPLETIONS, **asked)
    assert "".join(event["choices"][0]["text"] for event in events) == text
    told = (await server.post(COMPLETIONS, **asked, logprobs=1)).json()["choices"][0]["logprobs"]
    assert "".join(told["tokens"]) == text
    assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
    assert None not in told["token_logprobs"][1:]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_log_probabilities_are_of_the_tokens_whole_and_streamed(server: Any, path: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 7}
    asked |= (
        {"messages": HELLO, "logprobs": True, "top_logprobs": 3}
        if path == CHAT
        else {"prompt": "x", "logprobs": 3}
    )
    whole = (await server.post(path, **asked)).json()["choices"][0]
    events = [event["choices"][0] for event in await server.events(path, **asked)]
    streamed = [event["logprobs"] for event in events if event["logprobs"]]
    if path == CHAT:
        content = whole["logprobs"]["content"]
        assert "".join(each["token"] for each in content) == whole["message"]["content"]
        assert all(len(each["top_logprobs"]) == 3 and each["logprob"] <= 0 for each in content)
        assert [entry for each in streamed for entry in each["content"]] == content
        assert all(sum(math.exp(top["logprob"]) for top in each["top_logprobs"]) < 2 for each in content)
    else:
        logprobs = whole["logprobs"]
        assert "".join(logprobs["tokens"]) == whole["text"]
        assert len(logprobs["token_logprobs"]) == len(logprobs["text_offset"]) == 7
        assert all(len(each) == 3 for each in logprobs["top_logprobs"])
        assert [token for each in streamed for token in each["tokens"]] == logprobs["tokens"]


async def test_tokens_are_counted_as_the_answer_would_count_them(server: Any) -> None:
    asked = {"messages": HELLO, "system": "be brief"}
    counted = (await server.post(f"{MESSAGES}/count_tokens", **asked)).json()
    usage = (await server.post(MESSAGES, max_tokens=1, **asked)).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
