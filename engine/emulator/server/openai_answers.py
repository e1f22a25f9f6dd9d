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
from pdmuxd.engine.emulator.server.logprobs import (
    chat_logprobs,
    completion_logprobs,
    text_of_pieces,
)
from pdmuxd.engine.emulator.server.tokenizer import split
from pdmuxd.engine.emulator.server.usage import finish_reason, matched_by, text_of, usage_of

_END = b"}\n\n"
"""What closes every event."""


class _OpenAiAnswer(ABC):
    stream_object: str
    whole_object: str
    tells_usage_at_end = True
    """Whether the event with the reason has the usage, too, where each event has it."""

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
    def whole_part(self, index: int, text: str) -> Mapping[str, Any]:
        """The part of a choice that carries the whole text."""

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Events of the tokens from `first` up to `stop`, one each."""
        if self.call.logprobs is not None:
            return b"".join(self._with_logprobs(index, output, i) for i in range(first, stop))
        template = self._templates.get(index)
        if template is None:
            event = self.event([_choice(index, self.stream_part(GAP))], output)
            prefix, _, suffix = event.rpartition(GAP_JSON)
            template = self._templates[index] = prefix, suffix
        prefix, suffix = template
        if self.call.continuous_usage:
            return b"".join(
                prefix + output.plan.pieces[i] + _with_usage(suffix, output, i + 1)
                for i in range(first, stop)
            )
        return b"".join([prefix + piece + suffix for piece in output.plan.pieces[first:stop]])

    def _with_logprobs(self, index: int, output: Output, position: int) -> bytes:
        piece = output.plan.pieces[position : position + 1]
        part = self.stream_part(text_of_pieces(piece))
        choice = _choice(index, part, logprobs=self.logprobs(output, position, position + 1))
        event = self.event([choice], output)
        return _with_usage(event, output, position + 1) if self.call.continuous_usage else event

    @abstractmethod
    def logprobs(self, output: Output, first: int, stop: int) -> Mapping[str, Any]:
        """The log probabilities of these tokens, in the form of the endpoint."""

    def whole_logprobs(self, index: int, output: Output) -> Mapping[str, Any]:  # noqa: ARG002
        """The same of a whole answer."""
        return self.logprobs(output, 0, output.produced)

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """One event with all tokens from `first` up to `stop`; the first token was sent before."""
        prefix, suffix = self._templates[index]
        if self.call.continuous_usage:
            suffix = _with_usage(suffix, output, stop)
        return prefix + b"".join(output.plan.pieces[first:stop]) + suffix

    def ending(self, index: int, output: Output) -> bytes:
        """The event that says why an output ended."""
        event = self.event([_choice(index, self.stream_part(None), output, tool=self._tool)], output)
        has_usage = self.call.continuous_usage and self.tells_usage_at_end
        return _with_usage(event, output, output.produced) if has_usage else event

    def closing(self, outputs: Sequence[Output]) -> bytes:
        """The cache's details and the usage, if they were asked for, and the end of the stream."""
        details = self.event([], **self._details(outputs)) if self.call.cache_details else b""
        usage = self.event([], usage=self._usage(outputs)) if self.call.include_usage else b""
        return details + usage + DONE

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer without streaming."""
        choices = [self._whole_choice(i, output) for i, output in enumerate(outputs)]
        details = self._details(outputs) if self.call.cache_details else {}
        return self._object(self.whole_object, choices, usage=self._usage(outputs), **details)

    @property
    def _tool(self) -> str | None:
        return None if self.call.structure is None else self.call.structure.tool

    def _usage(self, outputs: Sequence[Output]) -> Mapping[str, Any]:
        return usage_of(outputs, choices=self.call.choices)

    def _whole_choice(self, index: int, output: Output) -> Mapping[str, Any]:
        logprobs = None if self.call.logprobs is None else self.whole_logprobs(index, output)
        part = self.whole_part(index, text_of(output))
        return _choice(index, part, output, logprobs=logprobs, tool=self._tool)

    def event(
        self, choices: list[Mapping[str, Any]], of: Output | None = None, /, **more: Mapping[str, Any]
    ) -> bytes:
        """One server-sent event, with an output's own id, as SGLang has it."""
        own_id = self.id if of is None else of.request.request_id
        return b"data: " + self._object(self.stream_object, choices, own_id, **more) + b"\n\n"

    @staticmethod
    def _details(outputs: Sequence[Output]) -> Mapping[str, Mapping[str, Any]]:
        """All of the emulated cache is in the device's memory."""
        cached_tokens = sum(output.request.reused_tokens for output in outputs)
        return {"sglext": {"cached_tokens_details": {"device": cached_tokens, "host": 0}}}

    def _object(
        self, kind: str, choices: list[Mapping[str, Any]], own_id: str = "", /, **more: Mapping[str, Any]
    ) -> bytes:
        fields: dict[str, Any] = {
            "id": own_id or self.id,
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
    tells_usage_at_end = False
    whole_object = "chat.completion"

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Events of tokens; one with the role goes before the first."""
        events = super().tokens(index, output, first, stop)
        if first > 0:
            return events
        opening = self.event([_choice(index, {"delta": {"role": "assistant", "content": ""}})], output)
        if self._tool is not None:
            calls = {"tool_calls": [self._call_of(index, "")]}
            opening += self.event([_choice(index, {"delta": calls})], output)
        return opening + events

    def stream_part(self, text: str | None) -> Mapping[str, Any]:
        if text is not None and self._tool is not None:
            call = {"index": 0, "type": "function", "function": {"arguments": text}}
            return {"delta": {"tool_calls": [call]}}
        return {"delta": {} if text is None else {"content": text}}

    def whole_part(self, index: int, text: str) -> Mapping[str, Any]:
        calls = None if self._tool is None else [self._call_of(index, text)]
        content = text if calls is None else ""
        return {
            "message": {
                "role": "assistant",
                "content": content,
                "reasoning_content": None,
                "tool_calls": calls,
            }
        }

    def logprobs(self, output: Output, first: int, stop: int) -> Mapping[str, Any]:
        """Log probabilities as the tokens of `content`."""
        return chat_logprobs(output.plan.pieces[first:stop], self.call.logprobs or 0)

    def _call_of(self, index: int, arguments: str) -> Mapping[str, Any]:
        function = {"name": self._tool, "arguments": arguments}
        return {"index": 0, "id": f"call_{self.id}_{index}", "type": "function", "function": function}


class CompletionAnswer(_OpenAiAnswer):
    """/v1/completions."""

    stream_object = "text_completion"
    whole_object = "text_completion"

    def stream_part(self, text: str | None) -> Mapping[str, Any]:
        return {"text": text or ""}

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Events of tokens; one with the prompt goes before the first, if it is wanted."""
        events = super().tokens(index, output, first, stop)
        echoed = self._echoed(index) if first == 0 else ""
        return self.event([_choice(index, {"text": echoed})], output) + events if echoed else events

    def whole_part(self, index: int, text: str) -> Mapping[str, Any]:
        return {"text": self._echoed(index) + text}

    def logprobs(self, output: Output, first: int, stop: int) -> Mapping[str, Any]:
        """Log probabilities as lists over the tokens of the answer."""
        return completion_logprobs(output.plan.pieces[first:stop], self.call.logprobs or 0)

    def whole_logprobs(self, index: int, output: Output) -> Mapping[str, Any]:
        """The same of a whole answer, with those of the prompt that stands before it."""
        echoed = [msgspec.json.encode(piece)[1:-1] for piece in split(self._echoed(index))]
        pieces = [*echoed, *output.plan.pieces[: output.produced]]
        return completion_logprobs(pieces, self.call.logprobs or 0, echoed=len(echoed))

    def _echoed(self, index: int) -> str:
        """The prompt, where it is a text: the emulated tokenizer has no text of ids."""
        prompt = self.call.prompts[index] if self.call.echo else ""
        return prompt if isinstance(prompt, str) else ""


def _choice(
    index: int,
    part: Mapping[str, Any],
    ended: Output | None = None,
    *,
    logprobs: Mapping[str, Any] | None = None,
    tool: str | None = None,
) -> Mapping[str, Any]:
    reason = None if ended is None else finish_reason(ended)
    return {
        "index": index,
        **part,
        "logprobs": logprobs,
        "finish_reason": "tool_calls" if reason == "stop" and tool is not None else reason,
        "matched_stop": None if ended is None else matched_by(ended),
    }


def _with_usage(event: bytes, output: Output, produced_tokens: int) -> bytes:
    usage = msgspec.json.encode(usage_of([output], produced_tokens=produced_tokens))
    return event.removesuffix(_END) + b',"usage":' + usage + _END
