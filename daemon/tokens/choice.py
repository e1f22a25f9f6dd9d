"""One choice of a streamed answer: what its client has of it, and what is new from either source.

Characters are counted: what the client has already is cut off when it comes again. So nothing is lost when
tokens are, and nothing is there twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

import msgspec

from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Piece, piece_of
from pdmuxd.daemon.tokens.forms import DATA, Said, Template, is_numbered, numbered, without_role
from pdmuxd.daemon.tokens.outbox import Outbox

_NO_REASON, _BY_LENGTH = b'"finish_reason":null', b'"finish_reason":"length"'
_encoder = msgspec.json.Encoder()


class Mismatch(StrEnum):
    """How the text of tokens was not the front end's."""

    FIRST = "first"
    """The first tokens already: a parser of the front end changes the text."""
    LATER = "later"


class Numbers:
    """Numbers of the events of one answer, where they have any."""

    __slots__ = ("last", "used")

    def __init__(self, *, used: bool) -> None:
        self.used = used
        self.last = -1

    def next(self) -> int:
        """That of the next event."""
        self.last += 1
        return self.last

    def renumbered(self, event: bytes) -> bytes:
        """An event of the front end, which does not know of those that were made of tokens."""
        if not self.used or not is_numbered(event):
            return event
        return numbered(event, self.next())


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the choices of one answer share."""

    max_unsent_bytes: int
    on_mismatch: Callable[[Mismatch], None]
    on_unread: Callable[[], None]
    numbers: Numbers
    role_has_form: bool
    """Whether the event that says who speaks is as those with text are."""
    think: tuple[str, ...] = ()
    """How reasoning begins and ends, neither of which the front end says, if it tells reasoning apart."""


class Choice:
    """`outbox` has what is for the client."""

    __slots__ = (
        *("outbox", "_max_unsent_bytes", "_on_mismatch", "_on_unread", "_numbers", "_role_has_form"),
        *("_sent", "_front_end", "_tokens", "_count", "_checksum", "_form", "_skips_empty", "_said_end"),
        *("_think", "_is_reasoning"),
        *("_text", "_first_text", "_heard_first", "_early", "early_characters", "uses_tokens", "from_tokens"),
    )

    def __init__(self, outbox: Outbox, surroundings: Surroundings) -> None:
        self.outbox = outbox
        self._max_unsent_bytes = surroundings.max_unsent_bytes
        self._on_mismatch = surroundings.on_mismatch
        self._on_unread = surroundings.on_unread
        self._numbers = surroundings.numbers
        self._role_has_form = surroundings.role_has_form
        self._think = surroundings.think
        self._is_reasoning: bool | None = None
        """What the front end said last."""
        # Positions in the choice's text, in characters.
        self._sent = self._front_end = self._tokens = 0
        self._count = 0
        """Tokens whose text lies before `_tokens`."""
        self._checksum = 0
        """Of what was sent from tokens since the front end's last event."""
        self._form: Template | None = None
        self._skips_empty = True
        """Whether an event without text is left out, as the front end does it."""
        self._said_end: bytes | None = None
        """What stands behind the text in the event of the end, where that was told already."""
        self._text: IncrementalText | None = None
        self._first_text: str | None = None
        self._heard_first = ""
        """The text of the front end's first event."""
        self._early: deque[tuple[int, str, int]] = deque()
        """Texts of tokens with their positions and counts that wait for the front end's first event."""
        self.early_characters = 0
        self.uses_tokens = True
        self.from_tokens = 0
        """Events that were made of tokens."""

    # The scheduler's tokens ----------------------------------------------------------------------------

    def begin(self, text: IncrementalText, first_text: str, token_ids: Sequence[int] = ()) -> None:
        """Note that it has begun; `first_text` is what the front end sends first, of these tokens."""
        if self._think:
            first_text = first_text.replace(self._think[0], "", 1)
        self._text, self._first_text = text, first_text
        self._tokens, self._count = len(first_text), len(token_ids)
        if not _may_begin(self._heard_first, first_text):
            self._distrust()

    def push_one(self, token_id: int) -> bool:
        """A new token; whether the outbox was empty before and is to `deliver` now."""
        source = self._text
        if source is None or not self.uses_tokens:
            return False
        piece = source.push_one(token_id)
        text, at = piece[0], self._tokens
        self._tokens = at + len(text)
        self._count += 1
        if text and at == self._sent and self._form is not None and not self._early:
            return self._put_piece(piece, self._form, self._count)
        return self._place(at, text, self._count)

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
            if form.tail.count(_NO_REASON) != 1:
                return False
            form = form.with_tail(form.tail.replace(_NO_REASON, _BY_LENGTH))
            self._said_end = form.tail_of(self._count + 1, 0)
        self._tokens += len(piece[0])
        self._count += 1
        return self._put_piece(piece, form, self._count)

    def push(self, token_ids: Sequence[int]) -> bool:
        """New tokens, as one event; what it says is as with `push_one`."""
        source = self._text
        if source is None or not self.uses_tokens:
            return False
        text = source.push(token_ids)
        at = self._tokens
        self._tokens = at + len(text)
        self._count += len(token_ids)
        return self._place(at, text, self._count)

    def hear_tokens(self, token_ids: Sequence[int]) -> None:
        """Tokens whose text the front end brings, since a parser had to read them."""
        source = self._text
        if source is None or not self.uses_tokens:
            return
        text = source.push(token_ids)
        if self._think and self._think[1] in text:
            if not self._is_reasoning:
                # Where nothing reasons it is text, and where nothing was said that is not known.
                self.stop_tokens()
                return
            text = text.replace(self._think[1], "", 1)
        self._tokens += len(text)
        self._count += len(token_ids)

    def stop_tokens(self) -> None:
        """Let the front end alone bring text from now on."""
        self.uses_tokens = False
        self._early.clear()
        self.early_characters = 0

    def _place(self, at: int, text: str, count: int) -> bool:
        if self._form is not None and self._sent >= at and not self._early:
            return self._write(at, text, count, self._form)
        self._early.append((at, text, count))
        self.early_characters += len(text)
        if len(self._early) > self._max_unsent_bytes // 64:
            self.stop_tokens()
        return False

    def _write(self, at: int, text: str, count: int, form: Template) -> bool:
        if at < self._sent:
            # The front end was faster.
            text = text[self._sent - at :]
            if not text:
                return False
        if self._skips_empty and not text:
            return False
        return self._put_piece(piece_of(text), form, count)

    def _put_piece(self, piece: Piece, form: Template, count: int) -> bool:
        text, encoded, utf8 = piece
        self._sent += len(text)
        self._checksum = crc32(utf8, self._checksum)
        tail = form.tail
        if form.slots:
            tail = form.tail_of(count, self._numbers.next() if self._numbers.used else 0)
        return self._put_made(b"%b%b%b" % (form.head, encoded, tail))

    def _put_made(self, event: bytes) -> bool:
        """An event that was made of tokens."""
        self.from_tokens += 1
        outbox = self.outbox
        is_first = outbox.put(event)
        if outbox.held_bytes > self._max_unsent_bytes:
            # A client that does not read: the rest comes with the answer's end, if that is ever read.
            self.stop_tokens()
            self._on_unread()
        return is_first

    def flush(self) -> None:
        """Write what waited for the front end's first event."""
        while self._early and self._form is not None and self._sent >= self._early[0][0]:
            at, text, count = self._early.popleft()
            self.early_characters -= len(text)
            self._write(at, text, count, self._form)

    # The front end's events ----------------------------------------------------------------------------

    def close(self) -> None:
        """The front end has ended: if it said any text, what still waits for its place has none."""
        if self._early and self._front_end and self.uses_tokens:
            self._distrust()

    def hear(self, said: Said, event: bytes) -> None:
        """An event of the front end."""
        if not said.is_last and (self._form is None or not said.is_role):
            self._skips_empty = said.skips_empty
            is_other = self._is_reasoning is not None and said.is_reasoning is not self._is_reasoning
            if not said.is_role:
                self._is_reasoning = said.is_reasoning
            is_first = self._form is None or self._front_end == 0
            if (is_first or is_other) and (self._role_has_form or not said.is_role):
                head = without_role(said.head) if said.is_role else said.head
                self._form = Template(head, said.tail, is_numbered=self._numbers.used)
        if said.is_role:
            self._put(event)
            return
        self._merge(said, event)

    def heard_otherwise(self, text: str, event: bytes) -> None:
        """An event with this text that is not as SGLang writes it: it goes through, tokens are of no use."""
        self.stop_tokens()
        self._put(event)
        self._front_end += len(text)
        self._sent = max(self._sent, self._front_end)

    def _merge(self, said: Said, event: bytes) -> None:
        text, at = said.text, self._front_end
        self._front_end = at + len(text)
        if at == 0:
            self._heard_first = text
            if self._first_text is not None and not _may_begin(text, self._first_text):
                self._distrust()
        known = min(len(text), max(0, self._sent - at))
        if not known:
            self._put(event)
        else:
            is_whole = known == self._sent - at
            if is_whole and crc32(text[:known].encode("utf-8", "surrogatepass")) != self._checksum:
                self._on_mismatch(Mismatch.LATER)
            if known < len(text) or (said.is_last and said.tail != self._said_end):
                if self._said_end is not None:
                    self._on_mismatch(Mismatch.LATER)
                self._put(said.head + _encoder.encode(text[known:]) + self._behind_text(said))
        self._checksum = 0
        self._sent = max(self._sent, self._front_end)

    def _behind_text(self, said: Said) -> bytes:
        return said.tail

    def _put(self, event: bytes) -> None:
        self.outbox.put(self._numbers.renumbered(event))

    def _distrust(self) -> None:
        self.stop_tokens()
        self._on_mismatch(Mismatch.FIRST)


def _may_begin(heard: str, first: str) -> bool:
    """Whether an answer may begin with both: the front end may say the first tokens in several events."""
    return heard.startswith(first) or first.startswith(heard)


class GrowingChoice(Choice):
    """One whose events have the whole text so far, with the ids of its tokens."""

    __slots__ = ("_ids", "_so_far", "_told")

    def __init__(self, outbox: Outbox, surroundings: Surroundings) -> None:
        super().__init__(outbox, surroundings)
        self._so_far = bytearray()
        """The text so far, in JSON without its quotes."""
        self._ids = bytearray()
        self._told = 0
        """Tokens that the client's last event has."""

    def begin(self, text: IncrementalText, first_text: str, token_ids: Sequence[int] = ()) -> None:
        """Note that it has begun."""
        super().begin(text, first_text, token_ids)
        self._add(piece_of(first_text), token_ids)

    def push_one(self, token_id: int) -> bool:
        """A new token."""
        source = self._text
        if source is None or not self.uses_tokens:
            return False
        return self._grow(source.push_one(token_id), (token_id,))

    def push_last(self, token_id: int) -> bool:  # noqa: ARG002
        """Not told here: the event of the end says how long all took."""
        return False

    def push(self, token_ids: Sequence[int]) -> bool:
        """New tokens, as one event."""
        source = self._text
        if source is None or not self.uses_tokens:
            return False
        return self._grow(piece_of(source.push(token_ids)), token_ids)

    def flush(self) -> None:
        """Write what waited for the front end's first event: the newest says all."""
        if self._text is not None and self.uses_tokens:
            self._tell()

    def hear(self, said: Said, event: bytes) -> None:
        """An event of the front end."""
        if self._form is None and not said.is_last:
            self._form = Template(said.head, said.tail)
            self._heard_first = said.text
            if self._first_text is not None and not _may_begin(said.text, self._first_text):
                self._distrust()
        if said.is_last:
            known = len(said.text) >= self._sent and said.text[: self._sent]
            if known and crc32(known.encode("utf-8", "surrogatepass")) != self._checksum:
                self._on_mismatch(Mismatch.LATER)
        elif said.tokens <= self._told:
            return
        self._told = said.tokens
        self.outbox.put(event)

    def _grow(self, piece: Piece, token_ids: Sequence[int]) -> bool:
        self._count += len(token_ids)
        self._add(piece, token_ids)
        return self._tell()

    def _add(self, piece: Piece, token_ids: Sequence[int]) -> None:
        text, encoded, utf8 = piece
        self._sent += len(text)
        self._checksum = crc32(utf8, self._checksum)
        self._so_far += encoded[1:-1]
        ids = b",".join(b"%d" % token_id for token_id in token_ids)
        self._ids += b",%b" % ids if self._ids else ids

    def _tell(self) -> bool:
        form = self._form
        if form is None or self._count <= self._told:
            return False
        self._told = self._count
        said = b'%b{"text":"%b","output_ids":[%b%b%d%b'
        return self._put_made(said % (DATA, self._so_far, self._ids, form.head, self._count, form.tail))
