from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.replay.ticks import detect_tick_s, spread_ticks


def test_the_tick_is_found_when_some_are_skipped_and_rounded_by_a_millisecond() -> None:
    ticks = np.array([0.0, 3.0, 5.999, 12.0, 15.001, 17.999])
    assert detect_tick_s(np.repeat(ticks, 3)) == 3.0


@pytest.mark.parametrize(
    "arrival_s",
    [
        np.array([]),
        np.array([0.0, 0.0, 0.0]),  # one instant: a burst, not a clock
        np.repeat([0.0, 10.0], 5),  # two instants tell no step
        np.arange(30) * 3.0,  # evenly spaced single arrivals
        np.repeat(np.arange(30) * 0.001, 4),  # the trace's resolution
        np.repeat(np.arange(30) * 300.0, 4),  # scheduled batches, minutes apart
        np.repeat(np.cumsum(np.random.default_rng(3).random(30) * 5), 4),  # no common step
    ],
)
def test_no_tick_is_found_when_there_is_none(arrival_s: np.ndarray) -> None:
    assert detect_tick_s(arrival_s) == 0.0


def test_no_tick_is_found_when_arrivals_are_poisson() -> None:
    rng = np.random.default_rng(7)
    arrival_s = np.round(np.cumsum(rng.exponential(0.3, 5000)), 3)
    assert detect_tick_s(arrival_s) == 0.0


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60).map(sorted),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.integers(0, 2**32),
)
def test_every_arrival_stays_in_its_tick_when_spread(ticks: list[int], tick_s: float, seed: int) -> None:
    arrival_s = np.array(ticks) * tick_s
    spread = spread_ticks(arrival_s, tick_s, seed)
    assert np.all(np.diff(spread) >= 0)
    assert np.all(spread >= arrival_s - 1e-9)
    assert np.all(spread < arrival_s + tick_s + 1e-9)


def test_a_tick_is_filled_evenly_when_spread() -> None:
    spread = spread_ticks(np.zeros(20_000), 3.0, seed=5)
    counts, _ = np.histogram(spread, bins=10, range=(0.0, 3.0))
    assert counts.min() > 1800
    assert counts.max() < 2200
