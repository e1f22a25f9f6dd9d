"""The answers of /v1/responses with their typed events.

Source of the forms: SGLang 0.5.23, `entrypoints/openai/serving_responses.py`; the `openai` package's models.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pdmuxd.engine.emulator.server.bodies import Call
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.usage import finish_reason, text_of, usage_of


class ResponsesAnswer:
    """Implements Answer, of the one output that a request has: a message, or the call of a function."""

    def __init__(self, call: Call, response_id: str, model: str) -> None:
        self._tool = None if call.structure is None else call.structure.tool
        self._id = f"resp_{response_id}"
        self._item_id = f"msg_{response_id}" if self._tool is None else f"fc_{response_id}"
        self._call_id = f"call_{response_id}"
        self._model = model
        self._created = int(time.time())
        self._limit = call.sampling.max_tokens
        self._repeated = call.repeated or {}
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
        """Send all at once as `tokens` does: the gateway leaves out what the client has."""
        return self.tokens(index, output, first, stop)

    def ending(self, index: int, output: Output) -> bytes:  # noqa: ARG002
        """The ends of the text, of its part and of the item."""
        opening = b"" if self._sequence else self._opening()
        text, place = text_of(output), self._place()
        if self._tool is None:
            ends = self._event("response.output_text.done", **place, text=text, logprobs=[])
            ends += self._event("response.content_part.done", **place, part=_part(text))
        else:
            name = "response.function_call_arguments.done"
            ends = self._event(name, **place, name=self._tool, arguments=text)
        item = self._item(text, _status(output))
        return opening + ends + self._event("response.output_item.done", output_index=0, item=item)

    def closing(self, outputs: Sequence[Output]) -> bytes:
        status = _status(outputs[0])
        return self._event(f"response.{status}", response=self._response(outputs))

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer without streaming."""
        return msgspec.json.encode(self._response(outputs))

    def _opening(self) -> bytes:
        place = self._place()
        opening = (
            self._event("response.created", response=self._response(()))
            + self._event("response.in_progress", response=self._response(()))
            + self._event("response.output_item.added", output_index=0, item=self._item(None, "in_progress"))
        )
        name = "response.function_call_arguments.delta"
        fields: dict[str, Any] = place
        if self._tool is None:
            opening += self._event("response.content_part.added", **place, part=_part(""))
            name, fields = "response.output_text.delta", {**place, "logprobs": []}
        head = f"event: {name}\ndata: ".encode() + msgspec.json.encode({"type": name, **fields})[:-1]
        self._delta = head + b',"delta":"', b'","sequence_number":'
        return opening

    def _place(self) -> dict[str, Any]:
        """Where the text, or the arguments, belong."""
        part = {"content_index": 0} if self._tool is None else {}
        return {"item_id": self._item_id, "output_index": 0, **part}

    def _event(self, kind: str, /, **fields: Any) -> bytes:  # noqa: ANN401 - what JSON can hold
        data = msgspec.json.encode({"type": kind, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        return f"event: {kind}\ndata: ".encode() + data + b"\n\n"

    def _item(self, text: str | None, status: str) -> Mapping[str, Any]:
        if self._tool is not None:
            return {
                "id": self._item_id,
                "type": "function_call",
                "call_id": self._call_id,
                "name": self._tool,
                "arguments": text or "",
                "status": status,
            }
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "phase": "final_answer",
            "content": [] if text is None else [_part(text)],
        }

    def _response(self, outputs: Sequence[Output]) -> Mapping[str, Any]:
        """The response; without outputs it is in progress."""
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
            "max_output_tokens": self._limit,
            "previous_response_id": None,
            "store": False,
            **self._repeated,
        }


def _part(text: str) -> Mapping[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


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
