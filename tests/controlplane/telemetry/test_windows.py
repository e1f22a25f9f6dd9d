"""Sliding windows: what is counted is there while it is young, and gone when it is old."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.controlplane.telemetry.counts import CountWindow
from pdmuxd.controlplane.telemetry.histogram import SlidingHistogram
from pdmuxd.engine.link.durations import bucket_of, middle_s

NOW_S = 1_769_860_800.0
durations = st.floats(2e-4, 800.0)


@settings(deadline=None)
@given(values=st.lists(durations, min_size=1, max_size=200))
def test_percentiles_are_within_four_percent_when_values_are_in_range(values: list[float]) -> None:
    histogram = SlidingHistogram()
    for value in values:
        histogram.add(value, NOW_S)
    spread = histogram.spread(NOW_S)
    ordered = sorted(values)
    for shown, share in ((spread.p50, 0.5), (spread.p99, 0.99)):
        exact_ms = ordered[math.ceil(share * len(ordered)) - 1] * 1000
        assert shown == pytest.approx(exact_ms, rel=0.04)
    assert spread.count == len(values)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, 1e9, math.inf])
def test_no_value_is_without_a_bucket_when_it_is_out_of_range(seconds: float) -> None:
    assert middle_s(bucket_of(seconds if seconds != math.inf else 1e300)) > 0


def test_a_weight_counts_as_so_many_values_when_it_is_given() -> None:
    histogram = SlidingHistogram()
    histogram.add(0.02, NOW_S, 98)
    histogram.add(0.5, NOW_S, 2)
    spread = histogram.spread(NOW_S)
    assert spread.count == 100
    assert spread.p50 == pytest.approx(20, rel=0.04)
    assert spread.p99 == pytest.approx(500, rel=0.04)


def test_there_is_no_percentile_when_nothing_was_counted() -> None:
    spread = SlidingHistogram().spread(NOW_S)
    assert (spread.count, spread.p50, spread.p99) == (0, None, None)


@settings(deadline=None)
@given(steps=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=60))
def test_a_histogram_holds_just_the_last_window_when_time_passes(steps: list[float]) -> None:
    histogram, now_s, added = SlidingHistogram(slots=6, slot_s=10.0), NOW_S, []
    for step_s in steps:
        now_s += step_s
        histogram.add(0.1, now_s)
        added.append(now_s)
    newest = int(now_s / 10.0)
    assert histogram.spread(now_s).count == sum(newest - int(at_s / 10.0) < 6 for at_s in added)


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(0, 1), st.integers(1, 5)), max_size=60),
    window_s=st.sampled_from([None, 10.0, 30.0, 60.0, 90.0]),
)
def test_counts_are_those_of_the_window_when_time_passes(
    steps: list[tuple[float, int, int]], window_s: float | None
) -> None:
    window, now_s, added = CountWindow(2, slots=9, slot_s=10.0), NOW_S, []
    for step_s, column, count in steps:
        now_s += step_s
        window.add(column, count, now_s)
        added.append((int(now_s / 10.0), column, count))
    slots = 9 if window_s is None else round(window_s / 10.0)
    newest = int(now_s / 10.0)
    expected = tuple(
        sum(count for slot, column, count in added if column == wanted and newest - slot < slots)
        for wanted in (0, 1)
    )
    assert window.sums(now_s, window_s) == expected
