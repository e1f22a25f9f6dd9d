from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replays import plan

from pdmuxd.daemon.compare.workload import draw, without_longer
from pdmuxd.engine.core.errors import TraceError

TRACE = plan(30).trace
RATES = st.floats(0.01, 30.0)
SEEDS = st.integers(0, 10_000)


@given(RATES, st.floats(1.0, 20.0), SEEDS, st.booleans())
def test_arrivals_are_in_order_and_within_the_run_when_drawn(
    rate_rps: float, seconds: float, seed: int, shuffle: bool
) -> None:
    run = draw(TRACE, rate_rps=rate_rps, seconds=seconds, seed=seed, shuffle=shuffle)
    at_s = [request.arrival_s for request in run.requests]
    assert at_s == sorted(at_s)
    assert len(at_s) == 1 or at_s[-1] < seconds
    assert run == draw(TRACE, rate_rps=rate_rps, seconds=seconds, seed=seed, shuffle=shuffle)


@given(RATES, SEEDS, st.booleans())
def test_a_higher_rate_sees_the_same_requests_sooner_when_the_seed_is_the_same(
    rate_rps: float, seed: int, shuffle: bool
) -> None:
    low = draw(TRACE, rate_rps=rate_rps, seconds=20.0, seed=seed, shuffle=shuffle).requests
    high = draw(TRACE, rate_rps=2.0 * rate_rps, seconds=20.0, seed=seed, shuffle=shuffle).requests
    assert len(high) >= len(low)
    for slow, fast in zip(low, high, strict=False):
        assert replace(slow, arrival_s=0.0) == replace(fast, arrival_s=0.0)
        assert fast.arrival_s == pytest.approx(slow.arrival_s / 2.0)


def test_the_rate_is_reached_when_a_run_is_long() -> None:
    run = draw(TRACE, rate_rps=7.0, seconds=3000.0, seed=1, shuffle=True)
    assert len(run.requests) == pytest.approx(21_000, rel=0.03)
    gaps_s = np.diff([request.arrival_s for request in run.requests])
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.05)  # as an exponential distribution has it


def test_requests_go_on_at_the_beginning_when_the_trace_ends_within_a_run() -> None:
    run = draw(TRACE, rate_rps=10.0, seconds=9.0, seed=4, shuffle=False)
    lines = [request.line for request in run.requests]
    assert len(lines) > 60
    assert all(after == before % 30 + 1 for before, after in pairwise(lines))


def test_every_request_comes_once_a_round_when_shuffled() -> None:
    lines = [r.line for r in draw(TRACE, rate_rps=10.0, seconds=9.0, seed=4, shuffle=True).requests]
    assert sorted(lines[:30]) == list(range(1, 31)) == sorted(lines[30:60])
    assert lines[:30] != list(range(1, 31))


def test_seeds_differ_when_drawn() -> None:
    runs = {draw(TRACE, rate_rps=5.0, seconds=5.0, seed=seed, shuffle=False).requests for seed in range(8)}
    assert len(runs) == 8


def test_longer_prompts_are_left_out_and_counted_when_a_limit_is_given() -> None:
    kept, left_out = without_longer(TRACE, 1000)
    assert left_out + len(kept.requests) == 30
    assert 0 < left_out < 30
    assert max(request.input_tokens for request in kept.requests) <= 1000


def test_an_error_says_so_when_every_prompt_is_longer() -> None:
    with pytest.raises(TraceError, match=r"trace.jsonl: all 30 requests have more than 3 input tokens"):
        without_longer(TRACE, 3)
