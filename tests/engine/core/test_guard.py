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


NEAR, FAR = (16, 0, 0, 3, 0), (16, 2, 0, 5, 1)
SHAPES = (PrefillShape.of([(64_000, 0)]), DecodeShape(bs=20, reused_tokens=4000))


def after(guard: ContentionGuard, cell: tuple[int, int, int, int, int], *ratios: float) -> ContentionGuard:
    for ratio in ratios:
        guard = guard.learned_for_all(cell, ratio)
    return guard


def test_all_unknown_cells_on_as_many_sms_are_raised_when_one_is_violated() -> None:
    known = guard_cell(16, *SHAPES)
    guard = after(ContentionGuard(default_ratio=1.3, cells={known: 1.1}), NEAR, *[1.8, 1.85, 1.9] * 10)
    assert guard.cells == {known: 1.1}, "what was measured is known better"
    assert guard.ratio(16, *SHAPES) == 1.1
    assert 1.9 <= guard.ratio(16, PrefillShape.of([(100, 0)]), SHAPES[1]) <= 2.1


def test_nothing_is_assumed_while_the_default_holds() -> None:
    guard = ContentionGuard(default_ratio=1.3)
    assert after(guard, NEAR, 1.3, 1.0, 1.29) is guard


@given(seen=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=40), cells=st.lists(st.integers(0, 3)))
def test_a_violation_is_covered_at_once_when_it_raises_all(seen: list[float], cells: list[int]) -> None:
    guard = ContentionGuard(default_ratio=1.2)
    for index, ratio in enumerate(seen):
        cell = (16, cells[index % len(cells)] if cells else 0, 0, 3, 0)
        before = guard.cells.get(cell, guard.assumed_ratio(16))
        guard = guard.learned_for_all(cell, ratio)
        covered = guard.cells.get(cell, guard.assumed_ratio(16))
        assert 1.2 <= covered <= MAX_RATIO
        assert ratio <= before or covered >= min(ratio, MAX_RATIO) - 1e-9


def test_other_sms_assume_the_worse_of_their_neighbours() -> None:
    guard = after(ContentionGuard(default_ratio=1.3), NEAR, *[1.9] * 30)
    guard = after(guard, (32, 0, 0, 3, 0), *[1.5] * 30)
    at = [guard.assumed_ratio(sms) for sms in (8, 16, 24, 32, 48)]
    assert at == pytest.approx([1.9, 1.9, 1.9, 1.5, 1.5], rel=0.05)


def test_what_is_assumed_falls_again_to_what_is_seen_and_no_lower_than_the_default() -> None:
    guard = after(ContentionGuard(default_ratio=1.3), NEAR, 2.0)
    high = guard.assumed_ratio(16)
    assert after(guard, NEAR, *[1.7] * 100).assumed_ratio(16) < high
    assert after(guard, NEAR, *[1.0] * 300).assumed_ratio(16) == pytest.approx(1.3)


def test_a_step_beyond_what_is_known_of_its_sms_raises_its_own_cell() -> None:
    guard = after(ContentionGuard(default_ratio=1.3), NEAR, *[1.8] * 50, 2.6)
    assert guard.cells == {NEAR: 2.6}
    assert after(guard, FAR, 1.8).cells == {NEAR: 2.6}
    assert not after(ContentionGuard(default_ratio=1.3, is_frozen=True), NEAR, 2.0).assumed
