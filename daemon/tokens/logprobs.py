"""Log probabilities of the scheduler's tokens, written as SGLang's chats and completions write them.

Source: SGLang 0.5.23, `_build_token_logprobs_from_raw` of entrypoints/openai/serving_chat.py, and
`to_openai_style_logprobs` of entrypoints/openai/utils.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from zlib import crc32

import msgspec
from msgspec import Raw

from pdmuxd.daemon.tokens.choice import Choice, Surroundings
from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Piece, Vocabulary
from pdmuxd.daemon.tokens.forms import Said, Template
from pdmuxd.daemon.tokens.outbox import Outbox
from pdmuxd.engine.link.token_frames import LogprobRow, LogprobSample

_UNFINISHED = "\ufffd"
_NULL, _FIELD = b"null", b'"logprobs":'
_CONTENT = b',"content":'
"""What stands between the delta of an event that has no text and that text."""
_encode = msgspec.json.Encoder().encode
_chat_decoder = msgspec.json.Decoder(dict[str, list[Raw]])


@cache
def _bytes_of_letters() -> dict[str, int]:
    """The byte that each letter of a token's name stands for, as GPT-2 writes them."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


class LogprobWriter:
    """Writes the value of `logprobs` in an event; `cut` leaves out what the client has of one."""

    def __init__(self, vocabulary: Vocabulary, sample: LogprobSample) -> None:
        self._vocabulary = vocabulary
        self._is_byte_level = sample.is_byte_level
        self._named: dict[int, bytes] = {}
        """By token, what a chat says of it before the value."""

    def is_as(self, sample: LogprobSample) -> bool:
        """Whether it writes what SGLang does."""
        return (self.chat(sample.rows), self.completion(sample.rows)) == (sample.chat, sample.completion)

    def chat(self, rows: Sequence[LogprobRow]) -> bytes:
        """The value in a chat's event."""
        return b'{"content":[%b]}' % b",".join(map(self._chat_row, rows))

    def completion(self, rows: Sequence[LogprobRow]) -> bytes:
        """The value in a completion's event."""
        tops = [
            dict(zip(map(self._text, row.top_ids), row.top_logprobs, strict=True))
            for row in rows
            if row.top_ids
        ]
        return _encode(
            {
                "text_offset": [-1] * len(rows),
                "token_logprobs": [row.logprob for row in rows],
                "tokens": [self._text(row.token_id) for row in rows],
                "top_logprobs": tops,
            }
        )

    def _chat_row(self, row: LogprobRow) -> bytes:
        tops = b",".join(
            b"%b%b}" % (self._name(token), _encode(value))
            for token, value in zip(row.top_ids, row.top_logprobs, strict=True)
        )
        return b'%b%b,"top_logprobs":[%b]}' % (self._name(row.token_id), _encode(row.logprob), tops)

    def _name(self, token_id: int) -> bytes:
        named = self._named.get(token_id)
        if named is None:
            text = self._vocabulary.single(token_id, skip_special_tokens=False)
            in_bytes = list(self._bytes(token_id) or text.encode())
            named = b'{"token":%b,"bytes":%b,"logprob":' % (_encode(text), _encode(in_bytes))
            self._named[token_id] = named
        return named

    def _text(self, token_id: int) -> str:
        """Name a token in a completion: a part of a character has a letter for each byte."""
        text = self._vocabulary.single(token_id, skip_special_tokens=False)
        if _UNFINISHED not in text:
            return text
        found = self._bytes(token_id)
        try:
            found.decode()
        except UnicodeDecodeError:
            return found.decode("latin-1")
        return text

    def _bytes(self, token_id: int) -> bytes:
        """A token's own; none where its name is not made of them."""
        if not self._is_byte_level:
            return b""
        known = _bytes_of_letters()
        name = self._vocabulary.name(token_id)
        return bytes(known[letter] for letter in name) if all(letter in known for letter in name) else b""


def _without(raw: bytes, known: int) -> tuple[int, bytes]:
    """How many tokens a value of SGLang's has, and the value without the first `known` of them."""
    if raw == _NULL:
        return 0, raw
    lists = _chat_decoder.decode(raw)
    count = max(map(len, lists.values()), default=0)
    return count, _encode({name: each[known:] for name, each in lists.items()}) if known else raw


class LogprobChoice(Choice):
    """One whose events say how likely each new token was."""

    __slots__ = (
        *("_before_value", "_first_tokens", "_heard", "_rest", "_rows", "_tells_all", "_told"),
        "_value_of",
    )

    def __init__(
        self,
        outbox: Outbox,
        surroundings: Surroundings,
        *,
        value_of: Callable[[Sequence[LogprobRow]], bytes],
        tells_all: bool,
    ) -> None:
        """`value_of` some tokens is what an event says; with `tells_all` there is one without text too."""
        super().__init__(outbox, surroundings)
        self._value_of = value_of
        self._tells_all = tells_all
        self._rows: deque[tuple[int, LogprobRow]] = deque()
        """Of tokens that the client has not been told, with their numbers."""
        self._first_tokens = 0
        """That went through the front end before the answer was direct."""
        self._heard = self._told = 0
        """Tokens whose values the front end has said, and those whose values the client has."""
        self._before_value = self._rest = b""

    def begin(self, text: IncrementalText, first_text: str, token_ids: Sequence[int] = ()) -> None:
        """Note that it has begun."""
        super().begin(text, first_text, token_ids)
        self._first_tokens = len(token_ids)
        self._count_first()

    def take_logprobs(self, rows: Sequence[LogprobRow]) -> None:
        """Note those of the tokens that are pushed next."""
        if self.uses_tokens:
            self._rows.extend(enumerate(rows, self._count))

    def hear(self, said: Said, event: bytes) -> None:
        """An event of the front end."""
        before, found, behind = said.tail.partition(_FIELD + said.logprobs)
        if not found:
            super().hear(said, event)
            return
        self._before_value = before + _FIELD
        is_first = self._first_text is None or self._front_end < len(self._first_text)
        known = 0 if is_first else max(0, self._told - self._heard)
        count, self._rest = _without(said.logprobs, known)
        self._heard += count
        self._told = max(self._told, self._heard)
        if known:
            event = said.head + _encode(said.text) + self._before_value + self._rest + behind
        is_told = 0 < len(said.text) <= self._sent - self._front_end
        super().hear(said._replace(tail=behind), event)
        self._count_first()
        if self._tells_all and is_told and known < count:
            self._put(said.head.removesuffix(_CONTENT) + self._before_value + self._rest + behind)

    def _count_first(self) -> None:
        """Where a character took several tokens, values of the first ones may not have been said."""
        if self._first_text is not None and self._front_end == len(self._first_text):
            self._heard = self._first_tokens
            self._told = max(self._told, self._heard)

    def _behind_text(self, said: Said) -> bytes:
        return self._before_value + self._rest + said.tail if said.logprobs else said.tail

    def _write(self, at: int, text: str, count: int, form: Template) -> bool:
        if text or at < self._sent or not self._skips_empty:
            return super()._write(at, text, count, form)
        value = self._value_until(count)
        if not self._tells_all:
            return False
        return self._put_made(form.head.removesuffix(_CONTENT) + value + self._tail_of(form, count))

    def _put_piece(self, piece: Piece, form: Template, count: int) -> bool:
        text, encoded, utf8 = piece
        self._sent += len(text)
        self._checksum = crc32(utf8, self._checksum)
        return self._put_made(form.head + encoded + self._value_until(count) + self._tail_of(form, count))

    def _tail_of(self, form: Template, count: int) -> bytes:
        return form.tail_of(count, 0) if form.slots else form.tail

    def _value_until(self, count: int) -> bytes:
        """Write those of the tokens before that number which the client has not been told."""
        rows, wanted = self._rows, []
        while rows and rows[0][0] < count:
            number, row = rows.popleft()
            if number >= self._told:
                wanted.append(row)
        self._told = max(self._told, count)
        return self._before_value + (self._value_of(wanted) if wanted else _NULL)
