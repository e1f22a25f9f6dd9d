"""What the next chunk of a fused step is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import running_prefill, waiting

from pdmuxd.engine.core.fusing import chunk_lengths
from pdmuxd.engine.core.types import PrefillMode


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0, []),
        (1, [(1, 0)]),
        (9, [(9, 0)]),
        (10, [(10, 0)]),
        (11, [(10, 0), (1, 5)]),
        (30, [(10, 0), (20, 5)]),
        (31, [(10, 0), (20, 5), (1, 0)]),
        (1000, [(10, 0), (20, 5), (40, 0)]),
    ],
)
def test_prompts_fill_the_budget_in_their_order(budget: int, expected: list[tuple[int, int]]) -> None:
    batch = (waiting(1, 10), waiting(2, 20, reused_tokens=5), waiting(3, 40))
    assert list(chunk_lengths(None, batch, budget)) == expected


def test_the_prefill_under_way_comes_first() -> None:
    prefill = running_prefill(100, mode=PrefillMode.CHUNKED)
    assert list(chunk_lengths(prefill, (waiting(1, 10),), 105)) == [(100, 0), (5, 0)]
    assert list(chunk_lengths(prefill, (waiting(1, 10),), 60)) == [(60, 0)]


@given(st.lists(st.integers(1, 500), max_size=8), st.integers(0, 2000))
def test_no_token_is_lost_and_the_budget_holds(lengths: list[int], budget: int) -> None:
    batch = tuple(waiting(i, n) for i, n in enumerate(lengths))
    chunk = list(chunk_lengths(None, batch, budget))
    assert sum(new for new, _ in chunk) == min(budget, sum(lengths))
    assert all(new > 0 for new, _ in chunk)
