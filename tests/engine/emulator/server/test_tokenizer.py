"""The emulator's tokenizer and what it says."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pdmuxd.engine.emulator.server import tokenizer
from pdmuxd.engine.emulator.server.filler import passage
from pdmuxd.engine.emulator.server.tokenizer import LONGEST_PIECE, block_keys, split, token_ids
from pdmuxd.engine.emulator.server.tokenizer_file import tokenizer_file

TEXT = st.text(max_size=300)


@given(TEXT)
def test_pieces_give_the_text_back_when_joined(text: str) -> None:
    pieces = split(text)
    assert "".join(pieces) == text
    assert all(1 <= len(piece) <= LONGEST_PIECE for piece in pieces)
    assert len(token_ids(text)) == len(pieces)


@given(st.text(st.sampled_from(" \tab1.,é"), max_size=60), st.integers(LONGEST_PIECE, 20))
def test_slices_are_cut_between_pieces(text: str, slice_chars: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = split(text)
        patch.setattr(tokenizer, "_SLICE_CHARS", slice_chars)
        assert split(text) == whole


def test_no_more_is_tokenized_than_is_needed_to_refuse() -> None:
    assert 100 <= len(token_ids("é" * 1_000_000, enough_tokens=100)) < 10_000


def test_tokens_are_about_four_characters_when_the_text_is_english() -> None:
    text = (
        "Operators state targets per tenant, and the daemon finds a partition that meets all of them. " * 20
    )
    assert 3.0 < len(text) / len(split(text)) < 5.5


def test_ids_and_keys_are_the_same_when_another_process_computes_them() -> None:
    # Python's own hash differs from process to process.
    program = (
        "from pdmuxd.engine.emulator.server.tokenizer import *;"
        "ids = token_ids('Stable ids, please: ünïcödé');"
        "print(ids.tolist(), block_keys(ids, 4))"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)]
    ids = token_ids("Stable ids, please: ünïcödé")
    assert runs[0].stdout == f"{ids.tolist()} {block_keys(ids, 4)}\n"


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(0, 60), st.integers(1, 20))
def test_keys_are_equal_exactly_when_the_prefix_is(ids: list[int], position: int, block_tokens: int) -> None:
    position %= len(ids)
    changed = ids.copy()
    changed[position] += 1
    before = block_keys(np.array(ids, dtype=np.uint32), block_tokens)
    after = block_keys(np.array(changed, dtype=np.uint32), block_tokens)
    assert len(before) == math.ceil(len(ids) / block_tokens)
    block = position // block_tokens
    assert before[:block] == after[:block]
    assert all(a != b for a, b in zip(before[block:], after[block:], strict=True))


def test_nothing_is_shared_when_the_salt_differs() -> None:
    ids = token_ids("the same prompt for two callers who must not share")
    keys = [block_keys(ids, 4, salt) for salt in ("", "a", "b")]
    assert len(set().union(*keys)) == sum(map(len, keys))


@given(st.integers(0, 2**64 - 1), st.integers(1, 400))
def test_the_filler_has_one_token_per_piece_when_tokenized(seed: int, tokens: int) -> None:
    pieces = passage(seed, tokens)
    text = b"".join(pieces).decode("ascii")
    assert [piece.decode() for piece in pieces] == split(text)
    assert len(pieces) == tokens
    assert not text.startswith(" ")
    assert '"' not in text
    assert "\\" not in text
    assert passage(seed, tokens + 7)[:tokens] == pieces


def test_the_filler_goes_on_when_it_is_longer_than_the_book() -> None:
    assert len(passage(3, 131_072)) == 131_072


TEXTS = (
    "The quick brown fox jumps over the lazy dog, surprisingly.",
    "def f(x):\n    return x ** 2  # wahr? \u00e4\u00f6\u00fc \U0001f600 12345678\n\n\n",
    " leading, trailing  and\t\tmuch        space ",
    "Zw\u00f6lf Boxk\u00e4mpfer (1,000.50)!!! a_b-c",
)


@pytest.mark.parametrize("vocab_size", [32_000, 128_256])
@pytest.mark.parametrize("text", TEXTS)
def test_the_file_counts_as_the_emulator_does_also_when_its_text_is_sent(text, vocab_size):
    library = Tokenizer.from_str(tokenizer_file(vocab_size).decode())
    ids = library.encode(text).ids
    assert len(ids) == len(token_ids(text))
    assert max(ids) < vocab_size
    assert len(token_ids(library.decode(ids))) == len(ids), "load tools make prompts of ids"
