"""One streamed answer from two sources: the engine's front end, and its scheduler's tokens.

The front end sends the first tokens of an answer and, with its end, all the text in between; the tokens of
the scheduler bring that text earlier. Characters are counted: what the client has already is cut off when it
comes again. So nothing is lost when tokens are, and nothing is there twice. The events are those of the front
end: its first one is the form of all that are made here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, UnsetType

from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Piece, piece_of
from pdmuxd.daemon.tokens.outbox import Outbox, deliver

DONE = b"data: [DONE]\n\n"
"""Behind the last event of OpenAI's streams."""
_DATA = b"data: {"
_END = b"\n\n"
_NO_REASON, _BY_LENGTH = b'"finish_reason":null', b'"finish_reason":"length"'
_ROLE = b'"role":"assistant",'
_encoder = msgspec.json.Encoder()


class _Delta(msgspec.Struct):
    role: str | None = None
    content: Raw | UnsetType = UNSET


class _Choice(msgspec.Struct):
    index: int = 0
    text: Raw | UnsetType = UNSET
    delta: _Delta | UnsetType = UNSET
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []


_event_decoder = msgspec.json.Decoder(_Event)
_text_decoder = msgspec.json.Decoder(str)


class Mismatch(StrEnum):
    """How the text of tokens was not the front end's."""

    FIRST = "first"
    """The first tokens already: a parser of the front end changes the text."""
    LATER = "later"


class MergedStream:
    """What is for the client, as both sources bring it; `outbox` has it. For one event loop."""

    __slots__ = (
        *("_before_event", "_on_mismatch", "_on_unread", "_max_unsent_bytes", "outbox"),
        *("_cut", "_sent", "_front_end", "_tokens", "_checksum", "_form", "_skips_empty", "_said_end"),
        *("_text", "_first_text", "_early", "_early_characters", "uses_tokens", "from_tokens"),
        "has_end",
    )

    def __init__(
        self,
        *,
        max_unsent_bytes: int,
        before_event: Callable[[], None] = lambda: None,
        on_mismatch: Callable[[Mismatch], None] = lambda _: None,
        on_unread: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_event` reads the tokens that have arrived, so that they are used before an answer's end."""
        self._max_unsent_bytes = max_unsent_bytes
        self._before_event = before_event
        self._on_mismatch = on_mismatch
        self._on_unread = on_unread
        self.outbox = Outbox()
        self._cut = b""
        """The begin of an event whose end has not come."""
        # Positions in the answer's text, in characters.
        self._sent = self._front_end = self._tokens = 0
        self._checksum = 0
        """Of what was sent from tokens since the front end's last event."""
        self._form: tuple[bytes, bytes] | None = None
        self._skips_empty = True
        """Whether an event without text is left out, as the front end does it."""
        self._said_end: bytes | None = None
        """What stands behind the text in the event of the end, where that was told already."""
        self._text: IncrementalText | None = None
        self._first_text: str | None = None
        self._early: deque[tuple[int, str]] = deque()
        """Texts of tokens with their positions that wait for the front end's first event."""
        self._early_characters = 0
        self.uses_tokens = True
        self.from_tokens = 0
        """Events that were made of tokens."""
        self.has_end = False
        """Whether the front end has said that nothing more comes."""

    # The scheduler's tokens ----------------------------------------------------------------------------

    def begin(self, text: IncrementalText, first_text: str) -> None:
        """The answer has begun; `first_text` is what the front end sends first."""
        self._text, self._first_text = text, first_text
        self._tokens = len(first_text)
        if self._front_end and not self._sent_is(first_text):
            self._distrust()

    def push_one(self, token_id: int) -> bool:
        """A new token; whether the outbox was empty before and is to `deliver` now."""
        source = self._text
        if source is None or not self.uses_tokens:
            return False
        piece = source.push_one(token_id)
        text, at, form = piece[0], self._tokens, self._form
        self._tokens = at + len(text)
        if text and at == self._sent and form is not None and not self._early:
            return self._put_piece(piece, form)
        return self._place(at, text)

    def push_last(self, token_id: int) -> bool:
        """The last token, where the answer is as long as it may be; what it says is as with `push_one`.

        A completion's last text is in the event of its end, which is told here and left out when it comes.
        """
        source, form = self._text, self._form
        if (
            source is None
            or form is None
            or not self.uses_tokens
            or self._tokens != self._sent
            or self._early
        ):
            return False
        piece = source.push_one(token_id)
        if not piece[0] or not source.is_complete:
            return False
        if not self._skips_empty:
            if form[1].count(_NO_REASON) != 1:
                return False
            self._said_end = form[1].replace(_NO_REASON, _BY_LENGTH)
            form = form[0], self._said_end
        self._tokens += len(piece[0])
        return self._put_piece(piece, form)

    def push(self, token_ids: Sequence[int]) -> bool:
        """New tokens, as one event; what it says is as with `push_one`."""
        source = self._text
        if source is None or not self.uses_tokens:
            return False
        text = source.push(token_ids)
        at = self._tokens
        self._tokens = at + len(text)
        return self._place(at, text)

    def stop_tokens(self) -> None:
        """From now on the front end alone brings text."""
        self.uses_tokens = False
        self._early.clear()
        self._early_characters = 0

    @property
    def held_bytes(self) -> int:
        """What waits for the client, and texts that wait for the front end's first event."""
        return self.outbox.held_bytes + self._early_characters

    def _place(self, at: int, text: str) -> bool:
        if self._form is not None and self._sent >= at and not self._early:
            return self._write(at, text, self._form)
        self._early.append((at, text))
        self._early_characters += len(text)
        if len(self._early) > self._max_unsent_bytes // 64:
            self.stop_tokens()
        return False

    def _write(self, at: int, text: str, form: tuple[bytes, bytes]) -> bool:
        if at < self._sent:
            # The front end was faster.
            text = text[self._sent - at :]
            if not text:
                return False
        if self._skips_empty and not text:
            return False
        return self._put_piece(piece_of(text), form)

    def _put_piece(self, piece: Piece, form: tuple[bytes, bytes]) -> bool:
        text, encoded, utf8 = piece
        self._sent += len(text)
        self._checksum = crc32(utf8, self._checksum)
        self.from_tokens += 1
        outbox = self.outbox
        is_first = outbox.put(b"%b%b%b" % (form[0], encoded, form[1]))
        if outbox.held_bytes > self._max_unsent_bytes:
            # A client that does not read: the rest comes with the answer's end, if that is ever read.
            self.stop_tokens()
            self._on_unread()
        return is_first

    def _flush(self) -> None:
        while self._early and self._form is not None and self._sent >= self._early[0][0]:
            at, text = self._early.popleft()
            self._early_characters -= len(text)
            self._write(at, text, self._form)

    # The front end's events ----------------------------------------------------------------------------

    async def feed(self, chunk: bytes) -> None:
        """Bytes of the front end's answer; waits while the client has not read what there is."""
        self._before_event()
        data = self._cut + chunk if self._cut else chunk
        begin = 0
        while (end := data.find(_END, begin)) >= 0:
            end += len(_END)
            self._event(data[begin:end])
            begin = end
        self._cut = data[begin:]
        self._flush()
        deliver((self.outbox,))
        while self.outbox.held_bytes > self._max_unsent_bytes:
            await self.outbox.taken()

    def close(self) -> None:
        """The front end's answer is over."""
        self._put_cut()
        self.outbox.close()

    def fail(self, error: BaseException) -> None:
        """The front end's answer broke off."""
        self._put_cut()
        self.outbox.close(error)

    def _put_cut(self) -> None:
        if self._cut:
            self.outbox.put(self._cut)
            self._cut = b""

    def _event(self, event: bytes) -> None:
        choice = _choice_of(event)
        if choice is None:
            self.has_end = self.has_end or event == DONE
            self.outbox.put(event)
            return
        delta = choice.delta
        value = choice.text if delta is UNSET else delta.content
        if value is UNSET or bytes(value) == b"null":
            self.outbox.put(event)
            return
        raw = bytes(value)
        text = _text_decoder.decode(raw)
        key = b'"text":' if delta is UNSET else b'"content":'
        head, found, tail = event.rpartition(key + raw)
        if not found:
            # Not as SGLang writes it; what it says goes through, and tokens are of no use.
            self.stop_tokens()
            self.outbox.put(event)
            self._front_end += len(text)
            self._sent = max(self._sent, self._front_end)
            return
        is_role = delta is not UNSET and delta.role is not None
        if choice.finish_reason is None and (self._form is None or not is_role):
            self._skips_empty = delta is not UNSET
            if self._form is None or self._front_end == 0:
                form_head = head.replace(_ROLE, b"", 1) if is_role else head
                self._form = form_head + key, tail
        if is_role:
            self.outbox.put(event)
            return
        self._merge(text, head + key, tail, is_last=choice.finish_reason is not None, event=event)

    def _merge(self, text: str, head: bytes, tail: bytes, *, is_last: bool, event: bytes) -> None:
        at = self._front_end
        self._front_end = at + len(text)
        if at == 0 and self._first_text is not None and not text.startswith(self._first_text):
            self._distrust()
        known = min(len(text), max(0, self._sent - at))
        if not known:
            self.outbox.put(event)
        else:
            is_whole = known == self._sent - at
            if is_whole and crc32(text[:known].encode("utf-8", "surrogatepass")) != self._checksum:
                self._on_mismatch(Mismatch.LATER)
            if known < len(text) or (is_last and tail != self._said_end):
                if self._said_end is not None:
                    self._on_mismatch(Mismatch.LATER)
                self.outbox.put(head + _encoder.encode(text[known:]) + tail)
        self._checksum = 0
        self._sent = max(self._sent, self._front_end)

    def _sent_is(self, first_text: str) -> bool:
        return self._front_end >= len(first_text)

    def _distrust(self) -> None:
        self.stop_tokens()
        self._on_mismatch(Mismatch.FIRST)


def _choice_of(event: bytes) -> _Choice | None:
    if not event.startswith(_DATA):
        return None
    try:
        choices = _event_decoder.decode(memoryview(event)[len(_DATA) - 1 :]).choices
    except (msgspec.DecodeError, RecursionError):
        return None
    return choices[0] if len(choices) == 1 else None
