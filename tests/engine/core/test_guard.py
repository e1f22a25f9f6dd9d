"""Invariant 7: the guard is never below 1, and rises at once on a violation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import MAX_RATIO, ContentionGuard, guard_cell, token_index
from pdmuxd.engine.core.types import DecodeShape, PrefillShape

tokens = st.integers(0, 200_000)
prefills = st.builds(lambda n, r: PrefillShape.of([(n, r)]), tokens, tokens)
decodes = st.builds(lambda bs, c: DecodeShape(bs=bs, reused_tokens=bs * c), st.integers(1, 256), tokens)


@pytest.mark.parametrize(
    ("count", "index"), [(0, 0), (2047, 0), (2048, 1), (8191, 1), (8192, 2), (32768, 3), (131072, 4)]
)
def test_the_grid_is_cut_at_powers_of_four_from_2k_when_tokens_are_indexed(count: int, index: int) -> None:
    assert token_index(count) == index


@given(prefill=prefills, decode=decodes, seen=st.lists(st.floats(0.01, 100.0), max_size=20))
def test_the_ratio_covers_every_observation_when_it_learns(
    prefill: PrefillShape, decode: DecodeShape, seen: list[float]
) -> None:
    guard = ContentionGuard(default_ratio=1.2)
    cell = guard_cell(2, prefill, decode)
    for ratio in seen:
        before = guard.ratio(2, prefill, decode)
        guard = guard.learned(cell, ratio)
        after = guard.ratio(2, prefill, decode)
        assert after >= 1.0
        assert after >= before
        assert after >= min(ratio, MAX_RATIO)


def test_other_cells_keep_their_value_when_one_is_raised() -> None:
    near, far = PrefillShape.of([(4000, 0)]), PrefillShape.of([(64000, 0)])
    decode = DecodeShape(bs=8, reused_tokens=8000)
    guard = ContentionGuard(default_ratio=1.1).learned(guard_cell(1, near, decode), 1.4)
    assert guard.ratio(1, near, decode) == 1.4
    assert guard.ratio(1, far, decode) == 1.1
    assert guard.ratio(2, near, decode) == 1.1


@pytest.mark.parametrize("ratio", [0.99, 4.01])
def test_a_ratio_out_of_range_is_refused_when_a_guard_is_made(ratio: float) -> None:
    with pytest.raises(ProfileError, match="guard ratio"):
        ContentionGuard(default_ratio=ratio)


def test_what_was_raised_here_stays_when_the_store_tells_of_other_cells() -> None:
    one, two, three = (1, 0, 0, 0, 0), (2, 0, 0, 0, 0), (3, 0, 0, 0, 0)
    before = ContentionGuard(default_ratio=1.1, cells={two: 1.4, three: 1.5})
    ours = before.learned(one, 1.3).learned(three, 1.9)
    after = ContentionGuard(default_ratio=1.1, cells={two: 1.2, three: 1.6})
    assert ours.updated(before, after).cells == {one: 1.3, two: 1.2, three: 1.6}


def test_a_cell_is_the_stores_when_it_was_reset_there() -> None:
    """As an operator does it: what the engine had raised must not come back."""
    cell, other = (1, 0, 0, 0, 0), (2, 0, 0, 0, 0)
    before = ContentionGuard(default_ratio=1.1, cells={cell: 1.5, other: 1.2})
    ours = before.learned(cell, 1.9)
    after = ContentionGuard(default_ratio=1.1, cells={other: 1.2})
    assert ours.updated(before, after) is after
    assert ours.learned(other, 1.3).updated(before, after).cells == {other: 1.3}


def test_nothing_is_learned_when_the_guard_is_frozen() -> None:
    guard = ContentionGuard(default_ratio=1.1, is_frozen=True)
    assert guard.learned((1, 0, 0, 0, 0), 2.0) is guard


def test_what_the_device_takes_stays_when_the_store_changes_the_guard() -> None:
    stored = ContentionGuard(default_ratio=1.2)
    slower = stored.on_device(1.1)
    assert slower.updated(stored, stored).device_ratio == 1.1
    assert replace(stored, is_frozen=True).on_device(1.5).device_ratio == 1.0
