"""POST /v1/messages, Anthropic's Messages API: the body, and the answer with its events.

Only text is emulated; tools and other content are refused by name.
Source of the forms: SGLang 0.5.23, `entrypoints/anthropic/serving.py`; the `anthropic` package's models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pdmuxd.engine.emulator.server.bodies import Call, ChatMessage, ContentPart, ResponseFormat, Sampling
from pdmuxd.engine.emulator.server.calls import conversation, no_structure_in, unsupported
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.tags import Tag
from pdmuxd.engine.emulator.server.usage import finish_reason, text_of, usage_of

_ABSENT = msgspec.Raw(b"null")


class _ToolChoice(msgspec.Struct):
    type: str


class _OutputConfig(msgspec.Struct):
    format: ResponseFormat | None = None


class MessagesBody(msgspec.Struct, kw_only=True):
    """POST /v1/messages."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)]
    model: str | None = None
    system: str | list[ContentPart] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    tools: msgspec.Raw = _ABSENT
    tool_choice: _ToolChoice | None = None
    output_config: _OutputConfig | None = None


def messages_call(body: MessagesBody, tag: Tag) -> Call:
    """Read a request. Raises: RequestError."""
    has_tools = bytes(body.tools) not in (b"null", b"[]")
    if has_tools and (body.tool_choice is None or body.tool_choice.type != "none"):
        raise unsupported("tools")
    no_structure_in(None if body.output_config is None else body.output_config.format, "output_config.format")
    system = [("system", _text(body.system, "system"))] if body.system else []
    turns = [
        (each.role, _text(each.content, f"messages[{i}].content")) for i, each in enumerate(body.messages)
    ]
    return Call(
        rid=tag.rid,
        tenant=tag.tenant,
        targets=tag.targets,
        prompts=(conversation([*system, *turns]),),
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


def _text(content: str | list[ContentPart] | None, param: str) -> str:
    if not isinstance(content, list):
        return content or ""
    for i, part in enumerate(content):
        if part.type != "text" or part.text is None:
            raise unsupported(f"{param}[{i}].type")
    return "\n".join(part.text or "" for part in content)


class MessagesAnswer:
    """Implements Answer, of the one output that a request has."""

    def __init__(self, call: Call, response_id: str, model: str) -> None:  # noqa: ARG002 - as the others
        self._id = f"msg_{response_id}"
        self._model = model
        self._is_open = False

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:  # noqa: ARG002
        """A delta for each token, after what opens the message."""
        opening = self._opening(output) if first == 0 else b""
        return opening + b"".join(
            [_DELTA_HEAD + piece + _DELTA_TAIL for piece in output.plan.pieces[first:stop]]
        )

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """As `tokens`: none of them go straight to the daemon."""
        return self.tokens(index, output, first, stop)

    def ending(self, index: int, output: Output) -> bytes:  # noqa: ARG002
        """The end of the text, and why."""
        opening = b"" if self._is_open else self._opening(output)
        delta = {"stop_reason": _stop_reason(output), "stop_sequence": output.plan.matched_stop}
        return opening + b"".join(
            (
                _event("content_block_stop", index=0),
                _event("message_delta", delta=delta, usage=_usage([output])),
            )
        )

    def closing(self, outputs: Sequence[Output]) -> bytes:  # noqa: ARG002
        """The end of the stream."""
        return _event("message_stop")

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer without streaming."""
        output = outputs[0]
        content = [{"type": "text", "text": text_of(output)}]
        return msgspec.json.encode(
            {
                **self._message(content, _usage(outputs)),
                "stop_reason": _stop_reason(output),
                "stop_sequence": output.plan.matched_stop,
            }
        )

    def _opening(self, output: Output) -> bytes:
        self._is_open = True
        usage = {**_usage([output]), "output_tokens": 0}
        return b"".join(
            (
                _event("message_start", message=self._message([], usage)),
                _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            )
        )

    def _message(self, content: list[dict[str, str]], usage: Mapping[str, int]) -> Mapping[str, Any]:
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


_DELTA_HEAD, _, _DELTA_TAIL = _event(
    "content_block_delta", index=0, delta={"type": "text_delta", "text": "\0"}
).partition(b"\\u0000")


def _stop_reason(output: Output) -> str:
    if output.plan.matched_stop is not None:
        return "stop_sequence"
    return "max_tokens" if finish_reason(output) == "length" else "end_turn"


def _usage(outputs: Sequence[Output]) -> Mapping[str, int]:
    """As Anthropic counts: `input_tokens` is without what the cache held."""
    usage = usage_of(outputs)
    cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }
