"""Adaptive wait-depth batching: PLA-Serve algorithm 1 and the windows of section 3.2."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import waiting

from pdmuxd.engine.core.adaptive_batching import (
    DEADLINE_FREE_TOKENS,
    DEADLINE_FREE_WAIT_S,
    GRAPH_BATCHES,
    GRAPH_LENGTHS,
    HEAD_OF_LINE_S,
    RATE_MEMORY_S,
    WINDOW_RANGE_S,
    AdaptiveBatchingState,
    captured_length,
    choose_batch,
    dispatched,
    hold_deadline_free_s,
    hold_s,
    nearest_graph,
    window_s,
    with_arrivals,
)
from pdmuxd.engine.core.types import PrefillGraph, WaitingRequest

BUSY = AdaptiveBatchingState(depth=8, rate_per_s=1000.0)


def short(
    number: int, tokens: int = 100, *, arrival_s: float = 0.0, deadline_s: float = 100.0
) -> WaitingRequest:
    return replace(waiting(number, tokens, deadline_s=deadline_s), arrival_s=arrival_s)


def ids(batch: tuple[WaitingRequest, ...]) -> list[str]:
    return [request.request_id for request in batch]


def test_the_window_is_the_time_to_fill_when_deadlines_are_far() -> None:
    # W_GR: 5 more are wanted, and 1000 come per second.
    assert window_s(BUSY, depth=3, slack_s=10.0) == pytest.approx(0.005)


def test_the_window_is_the_last_safe_wait_when_a_deadline_is_near() -> None:
    # W_SLA = 0.013 - delta (0.010) = 0.003 < W_GR = 0.007
    assert window_s(BUSY, depth=1, slack_s=0.013) == pytest.approx(0.003)


@given(st.integers(1, 64), st.integers(1, 64), st.floats(0.0, 1e6), st.floats(-1.0, 1e3))
def test_the_window_stays_in_its_range_whatever_the_load(
    target: int, depth: int, rate_per_s: float, slack_s: float
) -> None:
    state = AdaptiveBatchingState(depth=target, rate_per_s=rate_per_s)
    assert WINDOW_RANGE_S[0] <= window_s(state, depth=depth, slack_s=slack_s) <= WINDOW_RANGE_S[1]


def test_a_batch_waits_for_what_is_left_of_its_window() -> None:
    # 3 of 8 are there: W(t) = 5 ms; of W (20 ms since the first came) 4 ms are left.
    batch = [short(i) for i in range(3)]
    assert hold_s(BUSY, batch, now_s=0.010, service_s=0.005) == pytest.approx(0.005)
    assert hold_s(BUSY, batch, now_s=0.016, service_s=0.005) == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("count", "now_s", "deadline_s", "rate_per_s"),
    [
        (8, 0.001, 100.0, 1000.0),
        (1, 0.020, 100.0, 1000.0),
        (1, 0.001, 0.056, 1000.0),
        (1, HEAD_OF_LINE_S + 0.001, 100.0, 1000.0),
        (1, 0.001, 100.0, 10.0),
    ],
    ids=["depth", "window", "slack", "head of line", "nobody comes"],
)
def test_a_batch_goes_at_once_when(count: int, now_s: float, deadline_s: float, rate_per_s: float) -> None:
    state = replace(BUSY, rate_per_s=rate_per_s)
    batch = [short(i, deadline_s=deadline_s) for i in range(count)]
    assert hold_s(state, batch, now_s=now_s, service_s=0.005) == 0.0


def test_a_deadline_free_batch_goes_when_it_holds_enough_tokens_or_is_old() -> None:
    few, many = [short(0)], [short(i, 256) for i in range(DEADLINE_FREE_TOKENS // 256)]
    assert hold_deadline_free_s(few, now_s=0.25) == pytest.approx(DEADLINE_FREE_WAIT_S - 0.25)
    assert hold_deadline_free_s(few, now_s=DEADLINE_FREE_WAIT_S) == 0.0
    assert hold_deadline_free_s(many, now_s=0.0) == 0.0


def test_the_window_becomes_the_fill_time_when_the_depth_was_reached() -> None:
    after = dispatched(BUSY, depth=9, fill_s=0.004)
    assert (after.window_s, after.depth) == (0.004, 8)
    assert dispatched(BUSY, depth=8, fill_s=1.0).window_s == WINDOW_RANGE_S[1]


def test_the_depth_follows_what_came_when_it_was_not_reached() -> None:
    after = dispatched(BUSY, depth=5, fill_s=0.004)
    assert (after.window_s, after.depth) == (BUSY.window_s, 4)
    assert dispatched(after, depth=33, fill_s=0.004).depth == 32


def test_the_rate_is_that_of_arrivals_when_they_are_regular() -> None:
    state = AdaptiveBatchingState()
    for i in range(2000):
        now_s = i * 0.005
        state = with_arrivals(state, [short(i, arrival_s=now_s)], now_s)
    assert state.rate_per_s == pytest.approx(200.0, rel=0.02)


def test_an_arrival_counts_once_when_it_is_seen_twice() -> None:
    queue = [short(1, arrival_s=0.5)]
    once = with_arrivals(AdaptiveBatchingState(seen_s=0.0), queue, 0.6)
    twice = with_arrivals(once, queue, 0.7)
    assert once.rate_per_s == pytest.approx(1.0 / RATE_MEMORY_S)
    assert twice.rate_per_s == pytest.approx(math.exp(-0.1 / RATE_MEMORY_S) / RATE_MEMORY_S)
    assert with_arrivals(twice, queue, 0.7) is twice


@pytest.mark.parametrize(("tokens", "length"), [(1, 8), (8, 8), (9, 16), (100, 128), (256, 256), (257, None)])
def test_the_captured_length_is_the_next_power_of_two(tokens: int, length: int | None) -> None:
    assert captured_length(tokens) == length


def test_the_nearest_graph_holds_the_batch_with_the_least_padding() -> None:
    assert nearest_graph([60, 40, 33], 10_000) == PrefillGraph(length=64, batch=4)
    assert nearest_graph([250] * 8, 10_000) == PrefillGraph(length=256, batch=8)
    assert nearest_graph([8], 10_000) == PrefillGraph(length=8, batch=1)


@pytest.mark.parametrize(
    ("lengths", "budget"),
    [([], 10_000), ([257], 10_000), ([8] * 65, 10_000), ([60, 60, 60], 255), ([129, 129], 10_000)],
    ids=["nobody", "too long", "too many", "no memory", "padding"],
)
def test_there_is_no_graph_when(lengths: list[int], budget: int) -> None:
    assert nearest_graph(lengths, budget) is None


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(1, 20_000))
def test_a_graph_is_captured_and_holds_its_batch(lengths: list[int], budget: int) -> None:
    graph = nearest_graph(lengths, budget)
    if graph is not None:
        assert graph.length in GRAPH_LENGTHS
        assert graph.batch in GRAPH_BATCHES
        assert max(lengths) <= graph.length
        assert len(lengths) <= graph.batch
        assert graph.tokens <= budget


def test_all_go_together_when_one_graph_holds_them() -> None:
    queue = [short(1, 60), short(2, 20), short(3, 33)]
    assert ids(choose_batch(queue, 10_000, may_split=True)) == ["r1", "r2", "r3"]


def test_a_bucket_goes_first_when_one_graph_cannot_hold_all() -> None:
    queue = [short(1, 60), short(2, 250), short(3, 50), short(4, 200)]
    assert ids(choose_batch(queue, 10_000, may_split=True)) == ["r1", "r3"]
    assert ids(choose_batch(queue, 10_000, may_split=False)) == ["r1", "r2", "r3", "r4"]


@given(st.lists(st.integers(1, 256), min_size=1, max_size=80), st.integers(1, 5000), st.booleans())
def test_the_first_is_in_the_batch_and_the_budget_holds(
    lengths: list[int], budget: int, may_split: bool
) -> None:
    queue = [short(i, n) for i, n in enumerate(lengths)]
    batch = choose_batch(queue, budget, may_split=may_split)
    assert batch[0] is queue[0]
    assert len(batch) <= GRAPH_BATCHES[-1]
    assert len(batch) == 1 or sum(request.new_tokens for request in batch) <= budget


def test_nobody_is_left_behind_when_the_bucket_is_the_smaller_part() -> None:
    queue = [short(1, 60), short(2, 250), short(3, 200), short(4, 220)]
    assert len(choose_batch(queue, 10_000, may_split=True)) == 4
