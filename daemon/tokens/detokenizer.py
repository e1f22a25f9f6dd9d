"""Text of tokens, one step at a time, cut exactly where SGLang's detokenizer cuts it.

Source: SGLang 0.5.23, managers/detokenizer_manager.py, `_decode_batch_token_id_output`; and
`find_printable_text` of sglang/utils.py, which has it from transformers/generation/streamers.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link.token_frames import Sample

_UNFINISHED = "�"
"""What bytes that are no whole character yet are decoded to."""
_MAX_REMEMBERED = 2**17
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

_encoder = msgspec.json.Encoder()


class Piece(NamedTuple):
    """What a token adds to an answer, in each form that an event of it needs."""

    text: str
    encoded: bytes
    """As JSON, with its quotes."""
    utf8: bytes


NO_PIECE = Piece("", b'""', b"")


def piece_of(text: str) -> Piece:
    """All forms of a text."""
    return Piece(text, _encoder.encode(text), text.encode("utf-8", "surrogatepass")) if text else NO_PIECE


class Vocabulary:
    """The model's tokenizer, with what single tokens are by themselves remembered."""

    def __init__(self, path: Path, samples: Sequence[Sample]) -> None:
        """Raises: EngineError if it cannot be read, or makes other text than the engine's own."""
        from tokenizers import Tokenizer  # only where tokens come straight from a scheduler

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more special
            raise EngineError(f"the engine's tokenizer cannot be read: {error}") from error
        for sample in samples:
            if self.decode(sample.token_ids, skip_special_tokens=True) != sample.text:
                raise EngineError("the engine's tokenizer makes other text of tokens than its file does")
        self._single: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self._whole: tuple[dict[int, Piece], dict[int, Piece]] = ({}, {})
        self._joins = _joins(self._tokenizer.decoder)
        """Whether the text of tokens is that of their bytes one after the other, and nothing else."""
        self._size = int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def known(self, token_ids: Sequence[int]) -> list[int]:
        """Replace, as SGLang does, whatever is no token, such as what stands for an image, by token 0."""
        size = self._size
        return [token_id if 0 <= token_id < size else 0 for token_id in token_ids]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Make text of them."""
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens))

    def name(self, token_id: int) -> str:
        """How the vocabulary calls a token; empty if it has none."""
        return str(self._tokenizer.id_to_token(token_id) or "")

    def single(self, token_id: int, *, skip_special_tokens: bool) -> str:
        """The text of a token by itself."""
        known = self._single[skip_special_tokens]
        text = known.get(token_id)
        if text is None:
            text = self.decode((token_id,), skip_special_tokens=skip_special_tokens)
            if len(known) < _MAX_REMEMBERED:
                known[token_id] = text
        return text

    def remembered(self, *, skip_special_tokens: bool) -> dict[int, Piece]:
        """Tokens whose text is the same whatever stands around them; `whole` finds the others."""
        return self._whole[skip_special_tokens]

    def whole(self, token_id: int, *, skip_special_tokens: bool) -> Piece:
        """What a token adds wherever it stands; nothing if that depends on what stands around it.

        Where texts are bytes joined, and two tokens' bytes are characters each by themselves, the text of
        both is their texts joined.
        """
        if not self._joins or not 0 <= token_id < self._size:
            return NO_PIECE
        text = self.single(token_id, skip_special_tokens=skip_special_tokens)
        if _UNFINISHED in text:
            return NO_PIECE
        known = self._whole[skip_special_tokens]
        piece = known.get(token_id) or piece_of(text)
        if text and len(known) < _MAX_REMEMBERED:
            known[token_id] = piece
        return piece


def _joins(decoder: Any) -> bool:  # noqa: ANN401 - the library's
    """Whether a decoder of the library joins the bytes of tokens: `ByteLevel`, or `Fuse` for plain texts."""
    if decoder is None:
        return False
    described = json.loads(decoder.__getstate__())
    members = described["decoders"] if described["type"] == "Sequence" else [described]
    return len(members) == 1 and members[0]["type"] in ("ByteLevel", "Fuse")


class IncrementalText:
    """The text of one answer as its tokens come."""

    __slots__ = (
        "_ids",
        "_is_whole",
        "_pending",
        "_read",
        "_remembered",
        "_skip",
        "_surrounding",
        "_vocabulary",
    )

    def __init__(
        self, vocabulary: Vocabulary, context: Sequence[int], *, skip_special_tokens: bool = True
    ) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._ids = vocabulary.known(context)
        """From where the next text is decoded on; what lies before is never looked at again."""
        self._read = len(self._ids)
        """So many of them are in the text already; they only say what stands before the next ones."""
        self._surrounding = vocabulary.decode(self._ids, skip_special_tokens=self._skip) if context else ""
        self._pending = 0
        """Characters that were given out although their token is not complete."""
        self._remembered = vocabulary.remembered(skip_special_tokens=skip_special_tokens)
        self._is_whole = False
        """Whether what stands before is one token of whole characters, so that it changes no other."""

    @property
    def is_complete(self) -> bool:
        """Whether all tokens so far are text that was given out."""
        return self._read == len(self._ids) and not self._pending

    def push_one(self, token_id: int) -> Piece:
        """Push one token as `push` does, and mostly without the tokenizer."""
        if self._is_whole:
            piece = self._remembered.get(token_id)
            if piece is None:
                piece = self._vocabulary.whole(token_id, skip_special_tokens=self._skip)
            if text := piece[0]:
                self._ids[0] = token_id
                self._surrounding = text
                return piece
        text = self.push((token_id,))
        ids = self._ids
        self._is_whole = len(ids) == self._read == 1 and bool(
            self._vocabulary.whole(ids[0], skip_special_tokens=self._skip).text
        )
        return piece_of(text)

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens add, perhaps none until a character is complete."""
        ids, vocabulary, skip = self._ids, self._vocabulary, self._skip
        self._is_whole = False
        ids.extend(vocabulary.known(token_ids))
        new_text = vocabulary.decode(ids, skip_special_tokens=skip)[len(self._surrounding) :]
        pending = self._pending
        if new_text and not new_text.endswith(_UNFINISHED):
            del ids[: self._read]
            self._read = len(ids)
            if len(ids) == 1:
                self._surrounding = vocabulary.single(ids[0], skip_special_tokens=skip)
            else:
                self._surrounding = vocabulary.decode(ids, skip_special_tokens=skip)
            self._pending = 0
            return new_text[pending:] if pending else new_text
        printable = _printable(new_text)
        self._pending = len(printable)
        return printable[pending:] if pending else printable


def _printable(text: str) -> str:
    """The longest part that is whole words."""
    if text.endswith("\n"):
        return text
    if text and _is_cjk(text[-1]):
        return text
    if len(text) > 1 and _is_cjk(text[-2]):
        return text[:-1]
    return text[: text.rfind(" ") + 1]


def _is_cjk(character: str) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in _CJK)
