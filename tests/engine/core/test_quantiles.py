"""The nearest rank, against its definition in whole numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.quantiles import nearest_rank


def test_nothing_has_no_quantile():
    assert nearest_rank([], 0.5) is None


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [
        (1, 0.0, 1),
        (1, 1.0, 1),
        (10, 0.5, 5),
        (99, 0.99, 99),
        (100, 0.99, 99),
        (101, 0.99, 100),
        (100, 0.07, 7),
    ],
)
def test_the_rank_is_that_of_whole_numbers(count, share, rank):
    assert nearest_rank(range(count, 0, -1), share) == rank


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(0, 100))
def test_enough_values_do_not_exceed_it_and_no_smaller_one_would_do(values, percent):
    found = nearest_rank(values, percent / 100)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    below = [value for value in values if value < found]
    assert not below or 100 * len(below) < percent * len(values)
