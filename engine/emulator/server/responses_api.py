"""POST /v1/responses, OpenAI's Responses API: the body. `responses_answer.py` has the answer.

Text, pictures, structured output and functions are emulated; whatever would be stored is refused by name.
Source of the forms: SGLang 0.5.23, `entrypoints/openai/serving_responses.py`; the `openai` package's models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pdmuxd.engine.emulator.server.bodies import Call, ContentPart, Sampling, decode
from pdmuxd.engine.emulator.server.calls import (
    DEFAULT_OUTPUT_TOKENS,
    conversation,
    text_of_parts,
    unsupported,
)
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.structures import ResponseFormat, Structure, called, formatted
from pdmuxd.engine.emulator.server.tags import Tag

_ABSENT = msgspec.Raw(b"null")
_TEXT_PARTS = ("input_text", "output_text", "text")
_CALL, _OUTPUT = "function_call", "function_call_output"


class _TextConfig(msgspec.Struct):
    format: ResponseFormat | None = None


class _Item(msgspec.Struct):
    """One turn, the call of a function, or what it gave back; other items of `input` are not emulated."""

    role: str | None = None
    content: str | list[ContentPart] | None = None
    type: str = "message"
    name: str = ""
    arguments: str = ""
    output: str | list[ContentPart] | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None
    parameters: dict[str, Any] | None = None


class _ToolChoice(msgspec.Struct):
    type: str = "function"
    name: str = ""


# As types to decode: a union is none to the type checker.
_MAYBE_TEXT: Any = _TextConfig | None
_MAYBE_TOOLS: Any = list[_Tool] | None
_MAYBE_CHOICE: Any = str | _ToolChoice | None


class ResponsesBody(msgspec.Struct, kw_only=True):
    """POST /v1/responses."""

    input: str | Annotated[list[_Item], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop: str | list[str] | None = None
    text: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    tool_choice: msgspec.Raw = _ABSENT
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    background: bool | None = None
    previous_response_id: str | None = None


def responses_call(body: ResponsesBody, tag: Tag) -> Call:
    """Read a request. Raises: RequestError."""
    if body.background:
        raise unsupported("background")
    if body.previous_response_id is not None:
        raise unsupported("previous_response_id")
    system = [("system", body.instructions)] if body.instructions else []
    turns = [("user", body.input)] if isinstance(body.input, str) else _turns(body.input)
    text = decode(bytes(body.text), _MAYBE_TEXT, field="text")
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return Call(
        rid=tag.rid,
        direct_tokens=tag.direct_tokens,
        tenant=tag.tenant,
        targets=tag.targets,
        prompts=(conversation([*system, *turns]),),
        structure=_tool_call(body) or formatted(None if text is None else text.format, "text.format"),
        prompt_param="input",
        sampling=Sampling(
            max_tokens=body.max_output_tokens,
            min_tokens=0,
            ignore_eos=False,
            stops=stops,
            keep_stop=False,
            seed=0,
            default_max_tokens=DEFAULT_OUTPUT_TOKENS,
            limit_param="max_output_tokens",
        ),
        salt=tag.salt,
        stream=bool(body.stream),
        repeated={
            "instructions": body.instructions,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "reasoning": body.reasoning or {},
            "temperature": body.temperature,
            "text": _given(body.text, {"format": {"type": "text"}}),
            "tool_choice": _given(body.tool_choice, "auto"),
            "tools": _given(body.tools, []),
            "top_p": body.top_p,
            "truncation": body.truncation or "disabled",
            "user": body.user,
        },
    )


def _tool_call(body: ResponsesBody) -> Structure | None:
    """The same choice in the form of chat completions. Raises: RequestError 400."""
    tools = []
    for i, tool in enumerate(decode(bytes(body.tools), _MAYBE_TOOLS, field="tools") or ()):
        if tool.type != "function":
            continue  # what a platform runs is left out, as on SGLang
        if not tool.name:
            raise refuse(f"`tools[{i}].name` is missing", param=f"tools[{i}]")
        tools.append({"function": {"name": tool.name, "parameters": tool.parameters}})
    choice: object = decode(bytes(body.tool_choice), _MAYBE_CHOICE, field="tool_choice")
    if isinstance(choice, _ToolChoice):
        choice = {"function": {"name": choice.name}}
    has_result = isinstance(body.input, list) and body.input[-1].type == _OUTPUT
    return called(msgspec.json.encode(tools), msgspec.json.encode(choice), has_result=has_result)


def _turns(items: Sequence[_Item]) -> list[tuple[str, str]]:
    found = []
    for i, item in enumerate(items):
        if item.type == _CALL:
            found.append(("assistant", f"{item.name} {item.arguments}"))
        elif item.type == _OUTPUT:
            found.append(("tool", _text(item.output, f"input[{i}].output")))
        elif item.type == "message" and item.role is not None:
            found.append((item.role, _text(item.content, f"input[{i}].content")))
        else:
            raise refuse(f"`input[{i}].type` {item.type[:64]!r} is not known", param="input")
    return found


def _text(content: str | list[ContentPart] | None, param: str) -> str:
    return text_of_parts(content, param, texts=_TEXT_PARTS, pictures=("input_image",))


def _given(value: msgspec.Raw, default: object) -> object:
    return default if bytes(value) == b"null" else value
