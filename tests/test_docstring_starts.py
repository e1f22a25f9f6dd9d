"""The check that `make lint` makes of docstrings finds what it is there for."""

from __future__ import annotations

import pytest
from docstring_starts import riddles


def found(text: str) -> list[tuple[int, str]]:
    return list(riddles(f'def f():\n    """{text}"""\n'))


@pytest.mark.parametrize(
    "text", ["Of a swatch before the text.", "Who waits.", "By\n    percentile.", "These end."]
)
def test_a_docstring_is_found_when_it_begins_with_neither_a_noun_nor_a_verb(text: str) -> None:
    assert found(text) == [(2, text.partition("\n")[0])]


@pytest.mark.parametrize(
    "text", ["Cells of a swatch.", "Show it.", "`by` says how.", "This node.", "Offer it.", ""]
)
def test_a_docstring_is_left_alone_when_it_begins_with_one(text: str) -> None:
    assert found(text) == []
