from __future__ import annotations

import msgspec
import pytest
import scenes

from pdmuxd.tui.client.wire import StatsEvent
from pdmuxd.tui.state.series import KEPT_S, Series, scale_s


def stats(**changes):
    return msgspec.convert(scenes.stats(**changes), StatsEvent)


def test_a_column_is_the_mean_of_its_seconds_when_it_stands_for_several():
    series = Series()
    for tenth in range(40):
        series.add(stats(sm_busy_prefill_ratio=0.2 if tenth < 20 else 0.6), 100 + tenth / 10)
    assert series.shares(1, 5, 103.9) == [(pytest.approx(0.4), pytest.approx(0.32))]


def test_the_newest_is_at_the_right_when_seconds_are_missing():
    series = Series()
    series.add(stats(sm_busy_prefill_ratio=0.1), 100.0)
    series.add(stats(sm_busy_prefill_ratio=0.3), 102.5)
    assert series.shares(4, 1, 102.9) == [None, (0.1, 0.32), None, (0.3, 0.32)]


def test_a_column_keeps_what_it_holds_when_time_goes_on():
    series = Series()
    for second in range(100, 120):
        series.add(stats(sm_busy_prefill_ratio=second / 1000), float(second))
    before, after = series.shares(4, 5, 119.0), series.shares(4, 5, 120.0)
    assert after[:3] == before[1:]


def test_the_worst_is_shown_when_a_column_stands_for_several():
    series = Series()
    for second, p99 in enumerate((10.0, 90.0, 20.0, None)):
        series.add(stats(ttft_ms={"count": 1, "p50": 1.0, "p99": p99}), 100.0 + second)
    assert series.values(lambda one: one.ttft_p99_ms, 2, 5, 103.0) == [None, 90.0]


def test_nothing_is_counted_as_idle_when_there_is_no_engine():
    series = Series()
    series.add(stats(sm_busy_prefill_ratio=None, sm_busy_decode_ratio=None), 100.0)
    assert series.shares(1, 1, 100.0) == [None]


def test_memory_is_bounded_when_days_pass():
    series = Series()
    for second in range(KEPT_S + 500):
        series.add(stats(), float(second))
    shares = series.shares(KEPT_S + 500, 1, KEPT_S + 499.0)
    assert sum(one is not None for one in shares) == KEPT_S


@pytest.mark.parametrize(
    ("columns", "wanted_s", "scale"), [(300, 300, 1), (160, 300, 2), (80, 300, 5), (1, 300, 300)]
)
def test_the_scale_is_the_finest_that_fits_when_columns_are_few(columns, wanted_s, scale):
    assert scale_s(columns, wanted_s) == scale


def test_a_counters_speed_is_of_the_whole_minute_when_it_grows_in_leaps():
    series = Series()
    for second in range(100):
        series.add(stats(totals={"prompt_tokens": 16_000 * (second // 20)}), 1000.0 + second)
    assert series.counted_per_s("prompt_tokens", 60, 1099.0) == pytest.approx(32_000 / 59)


def test_a_counters_speed_is_not_known_when_the_engine_was_restarted_meanwhile():
    series = Series()
    series.add(stats(totals={"prompt_tokens": 9000}), 1000.0)
    series.add(stats(totals={"prompt_tokens": 10}), 1001.0)
    assert series.counted_per_s("prompt_tokens", 60, 1001.0) is None
