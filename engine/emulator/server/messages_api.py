"""POST /v1/messages, Anthropic's Messages API: the body, and the answer with its events.

Text, pictures and tools are emulated; other content is refused by name.
Source of the forms: SGLang 0.5.23, `entrypoints/anthropic/serving.py`; the `anthropic` package's models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pdmuxd.engine.emulator.server.bodies import Call, Sampling
from pdmuxd.engine.emulator.server.calls import conversation, unsupported
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.pictures import of_content
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.structures import ResponseFormat, Structure, called, formatted
from pdmuxd.engine.emulator.server.tags import Tag
from pdmuxd.engine.emulator.server.usage import finish_reason, text_of, usage_of

_ABSENT = msgspec.Raw(b"null")


class _Source(msgspec.Struct):
    type: str
    data: str | None = None


class _Part(msgspec.Struct):
    """A part of a message: a text, a picture, the call of a tool, or what it gave back."""

    type: str
    text: str | None = None
    source: _Source | None = None
    content: str | list[msgspec.Raw] | None = None
    input: msgspec.Raw = _ABSENT


class _Turn(msgspec.Struct):
    role: Annotated[str, Meta(pattern="^(user|assistant|system)$")]
    content: str | list[_Part]


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any] | None = None


class _OutputConfig(msgspec.Struct):
    format: ResponseFormat | None = None


class CountBody(msgspec.Struct, kw_only=True):
    """POST /v1/messages/count_tokens."""

    messages: Annotated[list[_Turn], Meta(min_length=1)]
    model: str | None = None
    system: str | list[_Part] | None = None


class MessagesBody(CountBody, kw_only=True):
    """POST /v1/messages."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    output_config: _OutputConfig | None = None


def messages_call(body: MessagesBody, tag: Tag) -> Call:
    """Read a request. Raises: RequestError."""
    wanted = None if body.output_config is None else body.output_config.format
    structure = _tool_call(body) or formatted(wanted, "output_config.format")
    return Call(
        rid=tag.rid,
        direct_tokens=tag.direct_tokens,
        tenant=tag.tenant,
        targets=tag.targets,
        prompts=(prompt_of(body),),
        structure=structure,
        prompt_param="messages",
        sampling=Sampling(
            max_tokens=body.max_tokens,
            min_tokens=0,
            ignore_eos=False,
            stops=tuple(body.stop_sequences or ()),
            keep_stop=False,
            seed=0,
        ),
        salt=tag.salt,
        stream=bool(body.stream),
    )


def prompt_of(body: CountBody) -> str:
    """The conversation in the emulated model's template. Raises: RequestError 400 for other content."""
    system = [("system", _text(body.system, "system"))] if body.system else []
    turns = [
        (each.role, _text(each.content, f"messages[{i}].content")) for i, each in enumerate(body.messages)
    ]
    return conversation([*system, *turns])


def _tool_call(body: MessagesBody) -> Structure | None:
    """The same choice in the form of chat completions."""
    choice: object = None
    if body.tool_choice is not None:
        kinds = {"auto": "auto", "any": "required", "none": "none"}
        named = body.tool_choice.type == "tool"
        if not named and body.tool_choice.type not in kinds:
            raise refuse(
                "`tool_choice.type` must be auto, any, none or tool",
                param="tool_choice.type",
            )
        choice = (
            {"function": {"name": body.tool_choice.name or ""}} if named else kinds[body.tool_choice.type]
        )
    tools = [{"function": {"name": tool.name, "parameters": tool.input_schema}} for tool in body.tools or ()]
    last = body.messages[-1].content
    has_result = isinstance(last, list) and any(part.type == "tool_result" for part in last)
    return called(msgspec.json.encode(tools), msgspec.json.encode(choice), has_result=has_result)


def _text(content: str | list[_Part] | None, param: str) -> str:
    if not isinstance(content, list):
        return content or ""
    said = []
    for i, part in enumerate(content):
        if part.type == "tool_use":
            said.append(bytes(part.input).decode())
        elif part.type == "tool_result":
            said.append(part.content if isinstance(part.content, str) else str(part.content or ""))
        elif part.type == "text" and part.text is not None:
            said.append(part.text)
        elif part.type == "image" and part.source is not None and part.source.data is not None:
            said.append(_picture(part.source.data, f"{param}[{i}].source.data"))
        else:
            raise unsupported(param)
    return "\n".join(said)


def _picture(data: str, param: str) -> str:
    try:
        return of_content(data)
    except ValueError:
        raise refuse(f"`{param}` is no base64", param=param) from None


class MessagesAnswer:
    """Implements Answer, of the one output that a request has."""

    def __init__(self, call: Call, response_id: str, model: str) -> None:
        self._tool = None if call.structure is None else call.structure.tool
        self._delta = _TEXT_DELTA if self._tool is None else _INPUT_DELTA
        self._id = f"msg_{response_id}"
        self._model = model
        self._is_open = False

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:  # noqa: ARG002
        """A delta for each token, after what opens the message."""
        opening = self._opening(output) if first == 0 else b""
        head, tail = self._delta
        return opening + b"".join([head + piece + tail for piece in output.plan.pieces[first:stop]])

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Send all at once as `tokens` does: the gateway leaves out what the client has."""
        return self.tokens(index, output, first, stop)

    def ending(self, index: int, output: Output) -> bytes:  # noqa: ARG002
        opening = b"" if self._is_open else self._opening(output)
        delta = {"stop_reason": self._stop_reason(output), "stop_sequence": output.plan.matched_stop}
        return opening + b"".join(
            (
                _event("content_block_stop", index=0),
                _event("message_delta", delta=delta, usage=_usage([output])),
            )
        )

    def closing(self, outputs: Sequence[Output]) -> bytes:  # noqa: ARG002
        return _event("message_stop")

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer without streaming."""
        output = outputs[0]
        content: list[dict[str, Any]] = [{"type": "text", "text": text_of(output)}]
        if self._tool is not None:
            # What was cut by max_tokens is no JSON; its reader is told so by the reason.
            whole = _stop_reason(output) == "end_turn"
            content = [self._call(msgspec.json.decode(text_of(output)) if whole else {})]
        return msgspec.json.encode(
            {
                **self._message(content, _usage(outputs)),
                "stop_reason": self._stop_reason(output),
                "stop_sequence": output.plan.matched_stop,
            }
        )

    def _call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{self._id}", "name": self._tool, "input": arguments}

    def _stop_reason(self, output: Output) -> str:
        reason = _stop_reason(output)
        return "tool_use" if reason == "end_turn" and self._tool is not None else reason

    def _opening(self, output: Output) -> bytes:
        self._is_open = True
        usage = {**_usage([output]), "output_tokens": 0}
        block = {"type": "text", "text": ""} if self._tool is None else self._call({})
        return b"".join(
            (
                _event("message_start", message=self._message([], usage)),
                _event("content_block_start", index=0, content_block=block),
            )
        )

    def _message(self, content: list[dict[str, Any]], usage: Mapping[str, int]) -> Mapping[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }


def _event(name: str, **fields: Any) -> bytes:  # noqa: ANN401 - what JSON can hold
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode({"type": name, **fields}) + b"\n\n"


def _template(delta: Mapping[str, str]) -> tuple[bytes, bytes]:
    head, _, tail = _event("content_block_delta", index=0, delta=delta).partition(b"\\u0000")
    return head, tail


_TEXT_DELTA = _template({"type": "text_delta", "text": "\0"})
_INPUT_DELTA = _template({"type": "input_json_delta", "partial_json": "\0"})


def _stop_reason(output: Output) -> str:
    if output.plan.matched_stop is not None:
        return "stop_sequence"
    return "max_tokens" if finish_reason(output) == "length" else "end_turn"


def _usage(outputs: Sequence[Output]) -> Mapping[str, int]:
    """Usage as Anthropic counts: `input_tokens` is without what the cache held."""
    usage = usage_of(outputs)
    cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }
