"""The emulator's tokenizer as a `tokenizer.json` of the library `tokenizers`, for tools that count tokens.

It cuts texts at the same places, so it counts the same. Its ids are others than the emulator's, which are
hashes: pieces that are not in its vocabulary are `UNKNOWN`, which is one piece again when it is written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from string import ascii_lowercase, digits, punctuation

import msgspec

from pdmuxd.engine.emulator.server.filler import words
from pdmuxd.engine.emulator.server.tokenizer import PIECE

UNKNOWN = " token"


@cache
def tokenizer_file(vocab_size: int) -> bytes:
    """The file, with ids below `vocab_size`."""
    pieces = dict.fromkeys(islice(dict.fromkeys(_pieces()), vocab_size))
    return msgspec.json.encode(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": PIECE.replace("|.", r"|[\s\S]")},
                "behavior": "Isolated",
                "invert": False,
            },
            "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {
                "type": "WordLevel",
                "vocab": {piece: number for number, piece in enumerate(pieces)},
                "unk_token": UNKNOWN,
            },
        }
    )


def _pieces() -> Iterator[str]:
    """The unknown one, what the emulated model says, and all short ones."""
    yield UNKNOWN
    for word in words():
        yield from (f" {word}", f" {word.capitalize()}", word)
    yield from (" ", "\n", "\n\n", "  ", "\t", *punctuation, *(f" {mark}" for mark in punctuation))
    for length, front in product((1, 2, 3), (" ", "")):
        for letters in product(ascii_lowercase, repeat=length):
            text = "".join(letters)
            yield front + text
            if length < 3:
                yield front + text.capitalize()
        for figures in product(digits, repeat=length):
            yield front + "".join(figures)
