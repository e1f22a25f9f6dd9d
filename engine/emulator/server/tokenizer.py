"""The emulator's own tokenizer: deterministic, exact, and about as fine as a real one.

A token is an optional space and up to five ASCII letters or digits, up to three punctuation marks, a run
of white space, or one other character: about four characters of English. Pieces joined give the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

LONGEST_PIECE = 8
"""Characters; a text of n characters has at least n / LONGEST_PIECE tokens."""
MAX_TOKEN_ID = 2**31 - 1
KEY_BYTES = 8

PIECE = r" ?[0-9A-Za-z]{1,5}| ?[!-/:-@\[-`{-~]{1,3}|\s{1,8}|."
_PIECE = re.compile(PIECE, re.DOTALL)
_REMEMBERED_PIECES = 200_000
_SLICE_CHARS = 8192

TokenIds = NDArray[np.uint32]


class _Ids(dict[str, int]):
    """Ids of pieces by a hash that is the same in every process."""

    def __missing__(self, piece: str) -> int:
        token_id = crc32(piece.encode("utf-8", "surrogatepass")) & MAX_TOKEN_ID
        if len(self) < _REMEMBERED_PIECES:
            self[piece] = token_id
        return token_id


_ids = _Ids()


def split(text: str) -> list[str]:
    """Split a text into its tokens' pieces."""
    return [piece for pieces in _pieces(text) for piece in pieces]


def token_ids(text: str, *, enough_tokens: int | None = None) -> TokenIds:
    """Tokenize a text, as far as it has fewer than `enough_tokens`. 1D."""
    found, count = [], 0
    for pieces in _pieces(text):
        found.append(np.fromiter(map(_ids.__getitem__, pieces), dtype=np.uint32, count=len(pieces)))
        count += len(pieces)
        if enough_tokens is not None and count >= enough_tokens:
            break
    return np.concatenate(found) if found else np.empty(0, dtype=np.uint32)


def _pieces(text: str) -> Iterator[list[str]]:
    """The pieces of one slice after another: other threads have their turn between two."""
    begin = 0
    while begin < len(text):
        end = begin + _SLICE_CHARS
        pieces = _PIECE.findall(text, begin, end)
        if end < len(text):
            # Only the last piece can have been cut short by the end of the slice.
            end -= len(pieces.pop())
        yield pieces
        begin = end


def piece_ids(pieces: Sequence[bytes]) -> TokenIds:
    """The ids of ASCII pieces, each of which is one token. 1D."""
    texts = (piece.decode("ascii") for piece in pieces)
    return np.fromiter(map(_ids.__getitem__, texts), dtype=np.uint32, count=len(pieces))


def block_keys(
    ids: TokenIds, block_tokens: int, salt: str = "", behind: int | None = None
) -> tuple[int, ...]:
    """One key per block of `block_tokens` tokens, the last perhaps partial.

    A key stands for its block and everything before it, so that equal keys mean equal prefixes; prompts
    of different `salt` share nothing. `behind` is the key of the block in front, if there is one.
    """
    data = ids.astype("<u4").tobytes()
    width = 4 * block_tokens
    salted = salt.encode("utf-8", "surrogatepass")
    digest = salted if behind is None else behind.to_bytes(KEY_BYTES, "little")
    keys = []
    for start in range(0, len(data), width):
        digest = blake2b(digest + data[start : start + width], digest_size=KEY_BYTES).digest()
        keys.append(int.from_bytes(digest, "little"))
    return tuple(keys)
