"""The pools that a campaign picks from fit the engine; pairs are spread over splits and the guard's grid."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pytest
from profiling import target_of

from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling import design_points
from pdmuxd.engine.profiling.design_points import (
    COLOCATED_STEPS,
    PAIRS,
    PairChoice,
    colocated_points,
    colocated_prefill_s,
    cost_s,
    decode_points,
    fused_of_size,
    fused_points,
    prefill_points,
)
from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.measurement import Point

TARGET = target_of(load_profile("h200-llama-8b"), fused_tokens=(16, 512))
SMALL = replace(
    TARGET, hello=msgspec.structs.replace(TARGET.hello, kv_capacity_tokens=6000, max_decode_bs=20)
)
SMS, SPLIT, MAX_S = 64, TARGET.splits[0], 0.3


@cache
def pool(*, is_small: bool) -> list[Point]:
    target = SMALL if is_small else TARGET
    return [
        *prefill_points(target, SMS, MAX_S),
        *decode_points(target, SMS, MAX_S),
        *fused_points(target, SMS, MAX_S),
        *colocated_points(target, SPLIT, MAX_S),
    ]


def of_mode(mode: str) -> list[Point]:
    return [point for point in pool(is_small=False) if point.mode == mode]


@pytest.mark.parametrize("is_small", [False, True])
def test_every_point_fits_the_engine_and_the_time(is_small: bool) -> None:
    target, found = SMALL if is_small else TARGET, pool(is_small=is_small)
    assert len(found) > 30
    for point in found:
        assert point.kv_tokens <= target.kv_tokens
        assert point.prefill_shape.new_tokens <= target.max_new_tokens
        assert len(point.decode) <= target.hello.max_decode_bs
        assert cost_s(target, point) <= MAX_S


def test_a_smaller_engine_has_fewer_points() -> None:
    assert len(pool(is_small=True)) < len(pool(is_small=False)) / 2


def test_no_point_stands_twice_in_a_pool() -> None:
    found = pool(is_small=False)
    assert len(set(found)) == len(found)


def test_decode_batches_have_every_captured_size_and_uneven_contexts() -> None:
    found = of_mode("decode")
    assert {len(point.decode) for point in found} >= set(TARGET.hello.captured_decode_bs)
    assert any(len(set(point.decode)) > 1 for point in found)


def test_uneven_contexts_have_the_sum_of_even_ones() -> None:
    sums = {sum(point.decode) for point in of_mode("decode") if len(set(point.decode)) == 1}
    for point in of_mode("decode"):
        assert sum(point.decode) in sums


def test_fused_batches_fill_every_graph_exactly() -> None:
    sizes = {point.prefill_shape.new_tokens + len(point.decode) for point in of_mode("fused")}
    assert {16, 512} <= sizes


@pytest.mark.parametrize("tokens", [2, 64, 512])
def test_batches_of_one_size_have_just_so_many_tokens(tokens: int) -> None:
    found = fused_of_size(TARGET, SMS, tokens)
    assert found
    assert {point.prefill_shape.new_tokens + len(point.decode) for point in found} == {tokens}


def test_a_prefill_of_a_pair_outlasts_the_decode_steps_beside_it() -> None:
    for point in of_mode("colocated"):
        assert colocated_prefill_s(TARGET, point) >= COLOCATED_STEPS * predict_s(TARGET.prior, point)


@cache
def fresh_choice() -> PairChoice:
    narrow = msgspec.structs.replace(TARGET.hello, partitions=TARGET.hello.partitions[:4])
    return PairChoice(replace(TARGET, hello=narrow), max_point_s=0.1, chance=random.Random(1))


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> PairChoice:
    monkeypatch.setattr(design_points, "_TRIED", 12)
    return copy.deepcopy(fresh_choice())


def test_pairs_are_spread_evenly_over_splits_and_none_comes_twice(choice: PairChoice) -> None:
    found = [choice.next(0.03) for _ in range(40)]
    points = [point for point in found if point is not None]
    assert len(set(points)) == 40
    counts = np.unique([point.decode_sms for point in points], return_counts=True)[1]
    assert counts.max() - counts.min() <= 1
    assert choice.missing == PAIRS - 40


def test_pairs_of_a_split_lie_apart_on_the_grid(choice: PairChoice) -> None:
    points = [choice.next(0.03) for _ in range(12)]
    first = [point for point in points if point is not None and point.decode_sms == points[0].decode_sms]  # type: ignore[union-attr]
    shapes = {(p.prefill_shape.new_tokens, p.prefill_shape.reused_tokens, len(p.decode)) for p in first}
    assert len(shapes) == len(first)


def test_a_pair_that_was_measured_before_counts_and_is_not_asked_again(choice: PairChoice) -> None:
    known = copy.deepcopy(choice).next(0.03)
    assert known is not None
    choice.take(known)
    assert choice.missing == PAIRS - 1
    assert known not in [choice.next(0.03) for _ in range(30)]


def test_there_is_no_next_pair_when_enough_are_measured(
    choice: PairChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(design_points, "PAIRS", 3)
    assert [choice.next(0.03) is None for _ in range(5)] == [False, False, False, True, True]
    assert choice.cost_s() > 0.0
