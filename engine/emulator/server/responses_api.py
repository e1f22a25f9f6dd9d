"""POST /v1/responses, OpenAI's Responses API: the body, and the answer with its typed events.

Only text is emulated; tools, structured output and whatever would be stored are refused by name.
Source of the forms: SGLang 0.5.23, `entrypoints/openai/serving_responses.py`; the `openai` package's models.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pdmuxd.engine.emulator.server.bodies import Call, ContentPart, Sampling
from pdmuxd.engine.emulator.server.calls import conversation, unsupported
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.structures import ResponseFormat, formatted
from pdmuxd.engine.emulator.server.tags import Tag
from pdmuxd.engine.emulator.server.usage import finish_reason, text_of, usage_of

_ABSENT = msgspec.Raw(b"null")
_DEFAULT_OUTPUT_TOKENS = 4096
"""Nearly all natural lengths are shorter: an answer without a limit ends by itself, as on SGLang."""
_TEXT_PARTS = ("input_text", "output_text", "text")


class _TextConfig(msgspec.Struct):
    format: ResponseFormat | None = None


class _Item(msgspec.Struct):
    """One turn; whatever else may stand in `input` is not emulated."""

    role: str | None = None
    content: str | list[ContentPart] | None = None
    type: str = "message"


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
    text: _TextConfig | None = None
    tools: msgspec.Raw = _ABSENT
    tool_choice: msgspec.Raw = _ABSENT
    background: bool | None = None
    previous_response_id: str | None = None


def responses_call(body: ResponsesBody, tag: Tag) -> Call:
    """Read a request. Raises: RequestError."""
    if body.background:
        raise unsupported("background")
    if body.previous_response_id is not None:
        raise unsupported("previous_response_id")
    if bytes(body.tools) not in (b"null", b"[]") and bytes(body.tool_choice) != b'"none"':
        raise unsupported("tools")
    system = [("system", body.instructions)] if body.instructions else []
    turns = [("user", body.input)] if isinstance(body.input, str) else _turns(body.input)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return Call(
        rid=tag.rid,
        tenant=tag.tenant,
        targets=tag.targets,
        prompts=(conversation([*system, *turns]),),
        structure=formatted(None if body.text is None else body.text.format, "text.format"),
        prompt_param="input",
        sampling=Sampling(
            max_tokens=body.max_output_tokens,
            min_tokens=0,
            ignore_eos=False,
            stops=stops,
            keep_stop=False,
            seed=0,
            default_max_tokens=_DEFAULT_OUTPUT_TOKENS,
            limit_param="max_output_tokens",
        ),
        salt=tag.salt,
        stream=bool(body.stream),
    )


def _turns(items: Sequence[_Item]) -> list[tuple[str, str]]:
    found = []
    for i, item in enumerate(items):
        if item.type != "message" or item.role is None:
            raise unsupported(f"input[{i}].type")
        content = item.content or ""
        if not isinstance(content, str):
            for j, part in enumerate(content):
                if part.type not in _TEXT_PARTS or part.text is None:
                    raise unsupported(f"input[{i}].content[{j}].type")
            content = "\n".join(part.text or "" for part in content)
        found.append((item.role, content))
    return found


class ResponsesAnswer:
    """Implements Answer, of the one output that a request has."""

    def __init__(self, call: Call, response_id: str, model: str) -> None:
        self._id = f"resp_{response_id}"
        self._item_id = f"msg_{response_id}"
        self._model = model
        self._created = int(time.time())
        self._limit = call.sampling.max_tokens
        self._sequence = 0
        self._delta = (b"", b"")

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:  # noqa: ARG002
        """A delta for each token, after what opens the answer."""
        opening = self._opening() if first == 0 else b""
        head, tail = self._delta
        deltas = []
        for piece in output.plan.pieces[first:stop]:
            deltas.append(head + piece + tail + b"%d}\n\n" % self._sequence)
            self._sequence += 1
        return opening + b"".join(deltas)

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """As `tokens`: none of them go straight to the daemon."""
        return self.tokens(index, output, first, stop)

    def ending(self, index: int, output: Output) -> bytes:  # noqa: ARG002
        """The ends of the text, of its part and of the item."""
        opening = b"" if self._sequence else self._opening()
        text = text_of(output)
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return opening + b"".join(
            (
                self._event("response.output_text.done", **place, text=text, logprobs=[]),
                self._event("response.content_part.done", **place, part=_part(text)),
                self._event(
                    "response.output_item.done", output_index=0, item=self._item(text, _status(output))
                ),
            )
        )

    def closing(self, outputs: Sequence[Output]) -> bytes:
        """The whole response."""
        status = _status(outputs[0])
        return self._event(f"response.{status}", response=self._response(outputs))

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer without streaming."""
        return msgspec.json.encode(self._response(outputs))

    def _opening(self) -> bytes:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        events = (
            self._event("response.created", response=self._response(())),
            self._event("response.in_progress", response=self._response(())),
            self._event("response.output_item.added", output_index=0, item=self._item(None, "in_progress")),
            self._event("response.content_part.added", **place, part=_part("")),
        )
        name = "response.output_text.delta"
        fields = msgspec.json.encode({"type": name, **place, "logprobs": []})
        head = f"event: {name}\ndata: ".encode() + fields[:-1]
        self._delta = head + b',"delta":"', b'","sequence_number":'
        return b"".join(events)

    def _event(self, name: str, **fields: Any) -> bytes:  # noqa: ANN401 - what JSON can hold
        data = msgspec.json.encode({"type": name, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        return f"event: {name}\ndata: ".encode() + data + b"\n\n"

    def _item(self, text: str | None, status: str) -> Mapping[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [] if text is None else [_part(text)],
        }

    def _response(self, outputs: Sequence[Output]) -> Mapping[str, Any]:
        """Without outputs it is in progress."""
        status = _status(outputs[0]) if outputs else "in_progress"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "model": self._model,
            "status": status,
            "output": [self._item(text_of(output), status) for output in outputs],
            "usage": _usage(outputs) if outputs else None,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "max_output_tokens": self._limit,
            "metadata": {},
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": None,
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
        }


def _part(text: str) -> Mapping[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(output: Output) -> str:
    return {"stop": "completed", "length": "incomplete"}.get(finish_reason(output), "failed")


def _usage(outputs: Sequence[Output]) -> Mapping[str, Any]:
    usage = usage_of(outputs)
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
