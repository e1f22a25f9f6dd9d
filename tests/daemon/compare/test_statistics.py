from __future__ import annotations

import pytest

from pdmuxd.daemon.compare.statistics import estimate


def test_there_is_no_interval_when_there_is_one_value() -> None:
    found = estimate([3.0])
    assert (found.mean, found.half_width_95) == (3.0, None)


def test_the_interval_is_student_s_when_there_are_few_values() -> None:
    # Mean 10, standard deviation 2, standard error 2/sqrt(3), t(2) = 4.303.
    found = estimate([8.0, 10.0, 12.0])
    assert found.mean == 10.0
    assert found.half_width_95 == pytest.approx(4.3027 * 2.0 / 3.0**0.5, rel=1e-4)


def test_the_interval_is_nearly_the_normal_one_when_there_are_many_values() -> None:
    found = estimate([float(i % 2) for i in range(100)])
    assert found.half_width_95 == pytest.approx(1.9842 * (25 / 99) ** 0.5 / 10.0, rel=1e-4)


def test_the_interval_is_zero_when_all_values_are_equal() -> None:
    assert estimate([2.5] * 4).half_width_95 == 0.0
