"""How events with text look, in each API: read from the front end's, and made of tokens in the same form.

Source: SGLang 0.5.23, entrypoints/openai/serving_chat.py, serving_completions.py, serving_responses.py,
entrypoints/anthropic/serving.py, and `serve_generate_request` of entrypoints/http_server.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

DATA = b"data: "
_NULL = b"null"
_ROLE = b'"role":"assistant",'
_MESSAGE = b"event: content_block_delta\n"
_RESPONSE = b"event: response.output_text.delta\n"
_COUNTS = re.compile(rb'"(completion_tokens|total_tokens)":(\d+)')
_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class Shape(StrEnum):
    """The form of an answer's events."""

    OPENAI = "openai"
    """/v1/chat/completions and /v1/completions: each event has what is new."""
    MESSAGES = "messages"
    """/v1/messages."""
    RESPONSES = "responses"
    """/v1/responses: events are numbered."""
    GENERATE = "generate"
    """/generate: each event has the whole answer so far."""


class Slot(StrEnum):
    """What differs from event to event, behind the text."""

    COMPLETION = "completion_tokens"
    TOTAL = "total_tokens"
    NUMBER = "sequence_number"


class Template:
    """All that two events of an answer have in common: what stands before the text, and behind it."""

    __slots__ = ("head", "prompt_tokens", "slots", "tail")

    def __init__(self, head: bytes, tail: bytes, *, is_numbered: bool = False) -> None:
        """Take the parts of one event; `tail` may hold numbers of tokens, and with `is_numbered` the event's
        own."""
        self.head, self.tail, self.prompt_tokens = head, tail, 0
        self.slots: tuple[tuple[Slot, bytes], ...] = ()
        """Numbers with what stands behind each; `tail` is what stands before the first."""
        begin = tail.rfind(b'"usage":{')
        if is_numbered:
            self._cut(tail, _NUMBER, 0)
        elif begin >= 0:
            self._cut(tail, _COUNTS, begin)

    def _cut(self, tail: bytes, pattern: re.Pattern[bytes], begin: int) -> None:
        found = list(pattern.finditer(tail, begin))
        if not found:
            return
        counts: dict[str, int] = {}
        slots = []
        for match, after in zip(found, [*(m.start(m.lastindex or 1) for m in found[1:]), None], strict=True):
            name = match[1].decode() if match.lastindex == 2 else Slot.NUMBER.value
            counts[name] = int(match[match.lastindex or 1])
            slots.append((Slot(name), tail[match.end() : after]))
        self.prompt_tokens = counts.get(Slot.TOTAL, 0) - counts.get(Slot.COMPLETION, 0)
        self.tail, self.slots = tail[: found[0].start(found[0].lastindex or 1)], tuple(slots)

    def with_tail(self, tail: bytes) -> Template:
        """The same with another text before the first number."""
        other = Template(self.head, tail)
        other.slots, other.prompt_tokens = self.slots, self.prompt_tokens
        return other

    def tail_of(self, tokens: int, number: int) -> bytes:
        """What stands behind the text in an event after so many tokens."""
        parts = [self.tail]
        for slot, after in self.slots:
            match slot:
                case Slot.COMPLETION:
                    value = tokens
                case Slot.TOTAL:
                    value = self.prompt_tokens + tokens
                case Slot.NUMBER:
                    value = number
            parts.append(b"%d%b" % (value, after))
        return b"".join(parts)


class Said(NamedTuple):
    """An event of the front end that has text of a choice."""

    part: str
    """The choice's id; empty where there is only one."""
    text: str
    """What is new; of /generate the whole text so far."""
    head: bytes
    tail: bytes
    skips_empty: bool
    """Whether tokens without text have no event."""
    is_role: bool = False
    """Whether it only says who speaks."""
    is_last: bool = False
    tokens: int = 0
    """Of /generate: how many the answer has so far."""
    is_reasoning: bool = False
    logprobs: bytes = b""
    """What `tail` says of them, in OpenAI's events."""


class _Delta(msgspec.Struct):
    role: str | None = None
    content: Raw | UnsetType = UNSET
    reasoning_content: Raw | UnsetType = UNSET


class _Choice(msgspec.Struct):
    text: Raw | UnsetType = UNSET
    delta: _Delta | UnsetType = UNSET
    logprobs: Raw = Raw(b"")
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    id: str = ""
    choices: list[_Choice] = []


class _TextDelta(msgspec.Struct):
    text: Raw | UnsetType = UNSET
    thinking: Raw | UnsetType = UNSET


class _BlockDelta(msgspec.Struct):
    delta: _TextDelta


class _OutputDelta(msgspec.Struct):
    delta: Raw


class _Meta(msgspec.Struct):
    id: str
    completion_tokens: int
    finish_reason: Raw


class _Generated(msgspec.Struct):
    text: str
    output_ids: Raw
    meta_info: Raw


_chunk_decoder = msgspec.json.Decoder(_Chunk)
_block_decoder = msgspec.json.Decoder(_BlockDelta)
_output_decoder = msgspec.json.Decoder(_OutputDelta)
_generated_decoder = msgspec.json.Decoder(_Generated)
_fields_decoder = msgspec.json.Decoder(dict[str, Raw])
_meta_decoder = msgspec.json.Decoder(_Meta)
text_decoder = msgspec.json.Decoder(str)


class NotUnderstoodError(Exception):
    """An event with text of a choice that is not written as SGLang writes it."""

    def __init__(self, part: str, text: str) -> None:
        super().__init__(text)
        self.part, self.text = part, text


def read(shape: Shape, event: bytes) -> Said | None:
    """None: it has no text. Raises: NotUnderstoodError."""
    try:
        match shape:
            case Shape.OPENAI:
                return _read_chunk(event)
            case Shape.MESSAGES:
                return _read_block_delta(event)
            case Shape.RESPONSES:
                return _read_output_delta(event)
            case Shape.GENERATE:
                return _read_generated(event)
    except (msgspec.DecodeError, RecursionError):
        return None


def numbered(event: bytes, number: int) -> bytes:
    """The same event with another number, if it has one."""
    found = list(_NUMBER.finditer(event))
    if not found:
        return event
    match = found[-1]
    return b"%b%d%b" % (event[: match.start(1)], number, event[match.end(1) :])


def is_numbered(event: bytes) -> bool:
    """Whether it has a number."""
    return _NUMBER.search(event) is not None


def _read_chunk(event: bytes) -> Said | None:
    if not event.startswith(b"data: {"):
        return None
    chunk = _chunk_decoder.decode(memoryview(event)[len(DATA) :])
    if len(chunk.choices) != 1:
        return None
    choice = chunk.choices[0]
    delta = choice.delta
    value = choice.text if delta is UNSET else delta.content
    is_reasoning = delta is not UNSET and _is_nothing(value) and not _is_nothing(delta.reasoning_content)
    if is_reasoning and delta is not UNSET:
        value = delta.reasoning_content
    if value is UNSET or _is_nothing(value):
        return None
    raw = bytes(value)
    key = b'"text":' if delta is UNSET else b'"reasoning_content":' if is_reasoning else b'"content":'
    head, tail = _around(event, key, raw, part=chunk.id)
    return Said(
        part=chunk.id,
        text=text_decoder.decode(raw),
        head=head,
        tail=tail,
        skips_empty=delta is not UNSET,
        is_role=delta is not UNSET and delta.role is not None,
        is_last=choice.finish_reason is not None,
        is_reasoning=is_reasoning,
        logprobs=bytes(choice.logprobs),
    )


def _is_nothing(value: Raw | UnsetType) -> bool:
    return value is UNSET or bytes(value) == _NULL


def without_role(head: bytes) -> bytes:
    """What stands before the text in an event that does not say who speaks."""
    return head.replace(_ROLE, b"", 1)


def _read_block_delta(event: bytes) -> Said | None:
    if not event.startswith(_MESSAGE):
        return None
    delta = _block_decoder.decode(memoryview(event)[len(_MESSAGE) + len(DATA) :]).delta
    if delta.text is not UNSET:
        return _delta(event, b'"text":', delta.text)
    if delta.thinking is not UNSET:
        return _delta(event, b'"thinking":', delta.thinking, is_reasoning=True)
    return None


def _read_output_delta(event: bytes) -> Said | None:
    if not event.startswith(_RESPONSE):
        return None
    value = _output_decoder.decode(memoryview(event)[len(_RESPONSE) + len(DATA) :]).delta
    return _delta(event, b'"delta":', value)


def _delta(event: bytes, key: bytes, value: Raw, *, is_reasoning: bool = False) -> Said:
    raw = bytes(value)
    head, tail = _around(event, key, raw)
    text = text_decoder.decode(raw)
    return Said(part="", text=text, head=head, tail=tail, skips_empty=True, is_reasoning=is_reasoning)


def _around(event: bytes, key: bytes, raw: bytes, *, part: str = "") -> tuple[bytes, bytes]:
    head, found, tail = event.rpartition(key + raw)
    if not found:
        raise NotUnderstoodError(part, text_decoder.decode(raw))
    return head + key, tail


def _read_generated(event: bytes) -> Said | None:
    if not event.startswith(b'data: {"text":'):
        return None
    data = event[len(DATA) :]
    generated = _generated_decoder.decode(data)
    meta = _meta_decoder.decode(generated.meta_info)
    is_last = bytes(meta.finish_reason) != _NULL
    text = generated.text
    head, tail = (b"", b"") if is_last else _generated_form(_fields_decoder.decode(data))
    return Said(
        part=meta.id,
        text=text,
        head=head,
        tail=tail,
        skips_empty=False,
        is_last=is_last,
        tokens=meta.completion_tokens,
    )


def _generated_form(fields: Mapping[str, Raw]) -> tuple[bytes, bytes]:
    """What stands before an answer's number of tokens in its events, behind its ids, and what behind it."""
    meta = _fields_decoder.decode(fields["meta_info"])
    # When SGLang sent the first part, which only the event of that part says.
    said = [(name, bytes(value)) for name, value in meta.items() if name != "response_sent_to_client_ts"]
    at = next(i for i, (name, _) in enumerate(said) if name == Slot.COMPLETION)
    before, after = _members(said[:at]), _members(said[at + 1 :])
    others = [
        (name, bytes(value)) for name, value in fields.items() if name not in _Generated.__struct_fields__
    ]
    head = b'],"meta_info":{%b%b"completion_tokens":' % (before, b"," if before else b"")
    tail = b"%b%b}%b%b}\n\n" % (b"," if after else b"", after, b"," if others else b"", _members(others))
    return head, tail


def _members(fields: list[tuple[str, bytes]]) -> bytes:
    return b",".join(b'"%b":%b' % (name.encode(), value) for name, value in fields)
