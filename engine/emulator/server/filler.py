"""What the emulated model says: readable sentences that mean nothing, one token of the tokenizer per word.

All text comes from one book, made at import and the same in every process. A request reads it from a
sentence that its prompt chooses, so an equal prompt gets an equal text.
"""

from __future__ import annotations

from zlib import crc32

_WORDS = {
    "D": "the a one each that this our some every no",
    "A": "quiet green small broad late warm cold tall plain round dry calm new grey",
    "N": "river stone house field road bird lamp tree boat wind hill door table cloud horse song coat wall "
    "bread clock",
    "V": "holds finds keeps sees turns moves leads meets opens takes calls waits",
    "P": "under over near by past from along into after",
    "B": "again often then there soon twice alone",
    "C": "and but while so",
}
"""By kind: determiner, adjective, noun, verb, preposition, adverb, conjunction; at most five letters each,
which is what one token holds."""
_SENTENCES = (
    "D A N V D N P D N .",
    "D N V B , C D A N V D N .",
    "P D A N D N V D A N .",
    "B D N V P D N , C D N V B .",
    "D A A N V D N .",
)
_BOOK_SENTENCES = 2048


def words() -> list[str]:
    """All words of the book, in lower case."""
    return [word for kind in _WORDS.values() for word in kind.split()]


def _write_book() -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The book's tokens, and where its sentences start."""
    by_kind = {kind: told.split() for kind, told in _WORDS.items()}
    tokens: list[bytes] = []
    starts: list[int] = []
    for number in range(_BOOK_SENTENCES):
        starts.append(len(tokens))
        form = _SENTENCES[_chance(number, 0) % len(_SENTENCES)].split()
        for place, kind in enumerate(form, start=1):
            choices = by_kind.get(kind)
            if choices is None:
                tokens.append(kind.encode())
                continue
            word = choices[_chance(number, place) % len(choices)]
            tokens.append(b" " + (word.capitalize() if place == 1 else word).encode())
    return tuple(tokens), tuple(starts)


def _chance(number: int, place: int) -> int:
    return crc32(b"%d/%d" % (number, place))


_BOOK, _STARTS = _write_book()


def known_pieces() -> list[bytes]:
    """Every piece that a passage may have, in an order that is the same in every process."""
    return sorted({*_BOOK, *(piece.lstrip() for piece in _BOOK)})


def passage(seed: int, tokens: int) -> list[bytes]:
    """`tokens` tokens of text, as ASCII that needs no escaping in JSON; the first has no leading space."""
    start = _STARTS[seed % len(_STARTS)]
    end = start + tokens
    book = _BOOK * -(-end // len(_BOOK)) if end > len(_BOOK) else _BOOK
    read = list(book[start:end])
    if read:
        read[0] = read[0].lstrip()
    return read
