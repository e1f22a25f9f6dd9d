from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.compare.search import highest_passing, point_of, rate_at

POINTS = st.integers(-50, 50)


@given(POINTS, POINTS, st.integers(1, 20))
def test_the_crossover_is_found_when_passing_is_monotone(boundary: int, start: int, step: int) -> None:
    probed: list[int] = []

    def passes(point: int) -> bool:
        probed.append(point)
        return point <= boundary

    found = highest_passing(passes, start=start, lowest=-40, highest=40, first_step=step)
    assert found == (None if boundary < -40 else min(boundary, 40))
    assert all(-40 <= point <= 40 for point in probed)
    assert len(probed) == len(set(probed)) <= 22


@given(st.lists(st.booleans(), min_size=30, max_size=30), st.integers(0, 29), st.integers(1, 9))
def test_the_answer_passes_and_its_successor_does_not_when_passing_is_anything(
    results: list[bool], start: int, step: int
) -> None:
    found = highest_passing(results.__getitem__, start=start, lowest=0, highest=29, first_step=step)
    if found is None:
        assert not results[0]
    else:
        assert results[found]
        assert found == 29 or not results[found + 1]


@given(st.floats(0.001, 10_000.0), st.floats(0.001, 0.3))
def test_the_nearest_point_is_within_half_a_step_when_a_rate_is_given(rate: float, resolution: float) -> None:
    assert rate_at(point_of(rate, resolution), resolution) == pytest.approx(rate, rel=0.51 * resolution)
