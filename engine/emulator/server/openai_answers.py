"""The answers of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pdmuxd.engine.emulator.server.answers import DONE, GAP, GAP_JSON
from pdmuxd.engine.emulator.server.bodies import Call
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.usage import finish_reason, text_of, usage_of

_END = b"}\n\n"
"""What closes every event."""


class _OpenAiAnswer(ABC):
    """What the two have in common."""

    stream_object: str
    whole_object: str

    def __init__(self, call: Call, response_id: str, model: str) -> None:
        self.call = call
        self.id = response_id
        self.model = model
        self.created = int(time.time())
        self._templates: dict[int, tuple[bytes, bytes]] = {}

    @abstractmethod
    def stream_part(self, text: str | None) -> Mapping[str, Any]:
        """The part of a streamed choice that carries text; None for the last event, which has none."""

    @abstractmethod
    def whole_part(self, text: str) -> Mapping[str, Any]:
        """The part of a choice that carries the whole text."""

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Events of the tokens from `first` up to `stop`, one each."""
        template = self._templates.get(index)
        if template is None:
            event = self.event([_choice(index, self.stream_part(GAP))])
            prefix, _, suffix = event.rpartition(GAP_JSON)
            template = self._templates[index] = prefix, suffix
        prefix, suffix = template
        if self.call.continuous_usage:
            return b"".join(
                prefix + output.plan.pieces[i] + _with_usage(suffix, output, i + 1)
                for i in range(first, stop)
            )
        return b"".join([prefix + piece + suffix for piece in output.plan.pieces[first:stop]])

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """One event with all tokens from `first` up to `stop`; the first token was sent before."""
        prefix, suffix = self._templates[index]
        return prefix + b"".join(output.plan.pieces[first:stop]) + suffix

    def ending(self, index: int, output: Output) -> bytes:
        """The event that says why an output ended."""
        event = self.event([_choice(index, self.stream_part(None), output)])
        return _with_usage(event, output, output.produced) if self.call.continuous_usage else event

    def closing(self, outputs: Sequence[Output]) -> bytes:
        """The cache's details and the usage, if they were asked for, and the end of the stream."""
        details = self.event([], **self._details(outputs)) if self.call.cache_details else b""
        usage = self.event([], usage=usage_of(outputs)) if self.call.include_usage else b""
        return details + usage + DONE

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer without streaming."""
        choices = [_choice(i, self.whole_part(text_of(output)), output) for i, output in enumerate(outputs)]
        details = self._details(outputs) if self.call.cache_details else {}
        return self._object(self.whole_object, choices, usage=usage_of(outputs), **details)

    def event(self, choices: list[Mapping[str, Any]], **more: Mapping[str, Any]) -> bytes:
        """One server-sent event."""
        return b"data: " + self._object(self.stream_object, choices, **more) + b"\n\n"

    @staticmethod
    def _details(outputs: Sequence[Output]) -> Mapping[str, Mapping[str, Any]]:
        """All of the emulated cache is in the device's memory."""
        cached_tokens = sum(output.request.reused_tokens for output in outputs)
        return {"sglext": {"cached_tokens_details": {"device": cached_tokens, "host": 0}}}

    def _object(self, kind: str, choices: list[Mapping[str, Any]], **more: Mapping[str, Any]) -> bytes:
        fields: dict[str, Any] = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }
        return msgspec.json.encode(fields)


class ChatAnswer(_OpenAiAnswer):
    """/v1/chat/completions."""

    stream_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Events of tokens; one with the role goes before the first."""
        events = super().tokens(index, output, first, stop)
        if first > 0:
            return events
        return self.event([_choice(index, {"delta": {"role": "assistant", "content": ""}})]) + events

    def stream_part(self, text: str | None) -> Mapping[str, Any]:
        """A delta."""
        return {"delta": {} if text is None else {"content": text}}

    def whole_part(self, text: str) -> Mapping[str, Any]:
        """A message."""
        return {
            "message": {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        }


class CompletionAnswer(_OpenAiAnswer):
    """/v1/completions."""

    stream_object = "text_completion"
    whole_object = "text_completion"

    def stream_part(self, text: str | None) -> Mapping[str, Any]:
        """A text."""
        return {"text": text or ""}

    def whole_part(self, text: str) -> Mapping[str, Any]:
        """A text."""
        return {"text": text}


def _choice(index: int, part: Mapping[str, Any], ended: Output | None = None) -> Mapping[str, Any]:
    return {
        "index": index,
        **part,
        "logprobs": None,
        "finish_reason": None if ended is None else finish_reason(ended),
        "matched_stop": None if ended is None else ended.plan.matched_stop,
    }


def _with_usage(event: bytes, output: Output, produced_tokens: int) -> bytes:
    usage = msgspec.json.encode(usage_of([output], produced_tokens=produced_tokens))
    return event.removesuffix(_END) + b',"usage":' + usage + _END
