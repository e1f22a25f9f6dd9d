"""The guard's first values, from pairs whose slowdown is known."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import MAX_RATIO, guard_cell
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling.contention import MIN_PAIRS, GuardFit, fit_guard, rows
from pdmuxd.engine.profiling.hardware import Pair
from pdmuxd.engine.profiling.measurement import Point

HIDDEN = load_profile("h200-llama-8b")
SPLITS = ((96, 36), (64, 68))
KV_TOKENS, MAX_BS = 200_000, 64


def law(point: Point) -> float:
    """Longer prefills slow decode more, the more so with many SMs; between 1.02 and 1.25."""
    new = np.log2(np.clip(point.prefill_shape.new_tokens, 512, 16384) / 512) / 5
    return float(1.02 + 0.23 * new * point.prefill_sms / 132)


def pair(point: Point, slowdown: float) -> Pair:
    return Pair(point=point, slowdown=slowdown, typical=slowdown, prefill=1.2)


def pairs(count: int, *, noise: float = 0.0, seed: int = 3) -> list[Pair]:
    source = random.Random(seed)
    found = []
    for _ in range(count):
        prefill_sms, decode_sms = source.choice(SPLITS)
        point = Point(
            mode="colocated",
            prefill_sms=prefill_sms,
            decode_sms=decode_sms,
            prefill=((source.choice((1024, 2048, 4096, 8192)), source.choice((0, 2048, 8192))),),
            decode=(source.choice((256, 1024, 4096)),) * source.choice((1, 4, 16, 32)),
        )
        found.append(pair(point, law(point) * source.lognormvariate(0.0, noise)))
    return found


def fitted(measured: list[Pair]) -> GuardFit:
    return fit_guard(
        measured,
        roofline=RooflineModel(model=HIDDEN.model, device=HIDDEN.device, overheads=HIDDEN.overheads),
        splits=SPLITS,
        kv_capacity_tokens=KV_TOKENS,
        max_decode_bs=MAX_BS,
    )


@pytest.fixture(scope="module")
def measured() -> list[Pair]:
    return pairs(60, noise=0.01)


@pytest.fixture(scope="module")
def found(measured: list[Pair]) -> GuardFit:
    return fitted(measured)


def test_hardly_a_pair_is_slower_than_its_bound_and_bounds_are_not_far_above(found: GuardFit) -> None:
    assert found.pairs == 60
    assert found.exceeded_ratio <= 0.05
    assert found.overestimate_ratio <= 0.10


def test_every_cell_bounds_the_law_wherever_it_was_measured(found: GuardFit) -> None:
    for one in pairs(200, seed=9):
        point = one.point
        cell = guard_cell(point.decode_sms, point.prefill_shape, point.decode_shape)
        assert found.cells[cell] >= law(point) - 0.01, point


def test_bounds_are_no_speed_up_no_stall_and_none_is_above_the_default(found: GuardFit) -> None:
    assert all(1.0 <= ratio <= MAX_RATIO for ratio in found.cells.values())
    assert found.default_ratio == max(found.cells.values())
    assert {cell[0] for cell in found.cells} == {decode_sms for _, decode_sms in SPLITS}


def test_no_bound_is_far_above_what_was_seen_where_nothing_was_measured(
    found: GuardFit, measured: list[Pair]
) -> None:
    assert found.default_ratio <= 1.1 * max(pair.slowdown for pair in measured)


def test_stalls_are_no_contention(found: GuardFit, measured: list[Pair]) -> None:
    stalled = [pair(measured[0].point, MAX_RATIO + 1.0), pair(measured[1].point, 40.0)]
    beside = fitted([*measured, *stalled])
    assert replace(beside, exceeded_ratio=found.exceeded_ratio) == found


def test_pairs_left_out_as_stalls_were_slower_than_their_bound(found: GuardFit, measured: list[Pair]) -> None:
    stalled = [pair(one.point, MAX_RATIO + 1.0) for one in measured[:20]]
    beside = fitted([*measured, *stalled])
    assert beside.exceeded_ratio == pytest.approx((20 + 60 * found.exceeded_ratio) / 80)


def test_a_split_on_which_pairs_scatter_little_is_bounded_more_tightly() -> None:
    rough = [one for one in pairs(400, noise=0.05) if one.point.decode_sms == 36]
    quiet = [one for one in pairs(400, noise=0.005, seed=4) if one.point.decode_sms == 68]
    found = fitted([*rough, *quiet])

    def above_law(ones: list[Pair]) -> float:
        cells = (guard_cell(p.decode_sms, p.prefill_shape, p.decode_shape) for p in (o.point for o in ones))
        return float(np.mean([found.cells[c] / law(o.point) for c, o in zip(cells, ones, strict=True)]))

    assert above_law(quiet) < above_law(rough) - 0.05
    assert found.exceeded_ratio < 0.01


def test_too_few_pairs_make_no_guard(measured: list[Pair]) -> None:
    stalled = pair(measured[0].point, MAX_RATIO + 1.0)
    with pytest.raises(ProfileError, match=rf"the guard: {MIN_PAIRS - 1} pairs; at least {MIN_PAIRS}"):
        fitted([*measured[: MIN_PAIRS - 1], stalled])


@settings(max_examples=50)
@given(
    new=st.integers(1, 40_000),
    reused=st.integers(0, 40_000),
    bs=st.integers(1, 300),
    context=st.integers(1, 20_000),
    split=st.sampled_from(SPLITS),
)
def test_each_column_grows_with_what_slows_decode(
    new: int, reused: int, bs: int, context: int, split: tuple[int, int]
) -> None:
    """So that the worst corner of a cell is known: long prefills of few reused tokens, few long contexts."""

    def row(new: int, reused: int, bs: int, context: int) -> np.ndarray:
        decode = DecodeShape(bs=bs, reused_tokens=bs * context)
        return rows(split, [PrefillShape.of([(new, reused)])], [decode])[0]

    here = row(new, reused, bs, context)
    assert (row(2 * new, reused, bs, context) >= here - 1e-9).all()
    assert (row(new, reused // 2, bs, context) >= here - 1e-9).all()
    assert (row(new, reused, max(1, bs // 2), context) >= here - 1e-9).all()
    assert (row(new, reused, bs, 2 * context) >= here - 1e-9).all()
