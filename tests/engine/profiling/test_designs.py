"""Columns of a regression and the predictor that is made of their coefficients say the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.core.shapes import Experts
from pdmuxd.engine.core.types import PrefillShape
from pdmuxd.engine.profiling.designs import (
    DECODE,
    DECODE_KNOTS,
    FUSED,
    FUSED_KNOTS,
    PREFILL,
    PREFILL_KNOTS,
    Design,
    own_columns,
    own_sizes,
)
from pdmuxd.engine.profiling.measurement import Point

requests = st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 30_000)), min_size=1, max_size=4)
contexts = st.lists(st.integers(1, 20_000), min_size=1, max_size=24)
slopes = st.floats(1e-9, 1e-3)
GRAPHS = (1, 2, 4, 8, 16, 24)
EXPERTS = Experts(count=128, per_token=8, intermediate=768)


def coefficients(rows: np.ndarray, data: st.DataObject) -> np.ndarray:
    return np.array(data.draw(st.lists(slopes, min_size=rows.shape[1], max_size=rows.shape[1])))


def point(mode: str, prefill: list[tuple[int, int]] | None = None, decode: list[int] | None = None) -> Point:
    return Point(
        mode=mode, prefill_sms=64, decode_sms=64, prefill=tuple(prefill or ()), decode=tuple(decode or ())
    )


@pytest.mark.parametrize("knots", [(), (128,), PREFILL_KNOTS])
@pytest.mark.parametrize("tile_tokens", [1, 128])
@settings(max_examples=15)
@given(data=st.data(), prompts=requests)
def test_a_prefill_takes_what_its_columns_say(
    knots: tuple[int, ...], tile_tokens: int, data: st.DataObject, prompts: list[tuple[int, int]]
) -> None:
    design = Design(knots=knots, tile_tokens=tile_tokens)
    rows = PREFILL.rows([point("prefill", prompts)], design)
    found = coefficients(rows, data)
    predictor = PREFILL.coefficients(found, 0.0, design)
    assert predictor.predict_s(PrefillShape.of(prompts)) == pytest.approx(float(rows[0] @ found), rel=1e-6)


@settings(max_examples=15)
@given(prompts=requests)
def test_no_prefill_takes_less_than_the_floor(prompts: list[tuple[int, int]]) -> None:
    predictor = PREFILL.coefficients(np.array([0.0, 0.0, 0.0, 0.001, 1e-5]), 0.05, Design(has_floor=True))
    shape = PrefillShape.of(prompts)
    assert predictor.predict_s(shape) == pytest.approx(max(0.05, 0.001 + 1e-5 * shape.new_tokens))


@pytest.mark.parametrize("captured", [(), GRAPHS])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("experts", [None, EXPERTS])
@settings(max_examples=15)
@given(data=st.data(), batch=contexts)
def test_a_decode_step_takes_what_its_columns_say(
    captured: tuple[int, ...], own: bool, experts: Experts | None, data: st.DataObject, batch: list[int]
) -> None:
    knots, own_bs = (() if own else DECODE_KNOTS), ((1, 4, 24) if own else ())
    design = Design(knots=knots, captured_bs=captured, own_bs=own_bs, experts=experts)
    step = point("decode", decode=batch)
    rows = DECODE.rows([step], design)
    found = coefficients(rows, data)
    predictor = DECODE.coefficients(found, 0.0, design)
    assert predictor.predict_s(step.decode_shape, captured) == pytest.approx(float(rows[0] @ found), rel=1e-6)


def test_the_last_column_counts_the_experts_that_the_replayed_graph_touches() -> None:
    design = Design(captured_bs=GRAPHS, experts=EXPERTS)
    rows = DECODE.rows([point("decode", decode=[9] * bs) for bs in (1, 3, 23, 300)], design)
    expected = [EXPERTS.touched(bs) for bs in (1, 4, 24, 300)]
    assert rows[:, -1] == pytest.approx(expected, rel=0.001)
    assert rows[:3, -1] == pytest.approx(expected[:3], rel=1e-12)


@pytest.mark.parametrize("captured", [(), (16, 512, 2048, 60_000)])
@settings(max_examples=15)
@given(data=st.data(), prompt=st.tuples(st.integers(1, 5000), st.integers(0, 20_000)), batch=contexts)
def test_a_fused_batch_takes_what_its_columns_say(
    captured: tuple[int, ...], data: st.DataObject, prompt: tuple[int, int], batch: list[int]
) -> None:
    design = Design(knots=FUSED_KNOTS, captured_bs=captured)
    both = point("fused", [prompt], batch)
    rows = FUSED.rows([both], design)
    found = coefficients(rows, data)
    predictor = FUSED.coefficients(found, 0.0, design)
    seconds = predictor.predict_s(both.prefill_shape, both.decode_shape)
    assert seconds == pytest.approx(float(rows[0] @ found), rel=1e-6)


@pytest.mark.parametrize("family", [PREFILL, DECODE, FUSED], ids=lambda family: family.name)
def test_more_work_has_no_smaller_columns(family) -> None:  # type: ignore[no-untyped-def]
    """So that slopes that are not negative never predict more work to be faster."""
    design = Design(knots=family.knots)
    small, large = point(family.name, [(700, 100)], [50, 60]), point(family.name, [(900, 200)], [50, 60, 70])
    rows = family.rows([small, large], design)
    assert (rows[1] >= rows[0]).all()
    assert (rows[1] > rows[0]).any()


@pytest.mark.parametrize(
    ("sizes", "captured", "at_least", "expected"),
    [
        ((3, 4, 8, 8), GRAPHS, 2, (4, 8)),
        ((3, 4, 8, 8), (), 2, (8,)),
        ((3, 4, 8, 8), (), 1, (3, 4, 8)),
        ((30, 30, 24, 24), GRAPHS, 2, (24,)),
        ((), GRAPHS, 1, ()),
    ],
)
def test_sizes_have_a_time_of_their_own_when_samples_enough_replay_their_graph(
    sizes: tuple[int, ...], captured: tuple[int, ...], at_least: int, expected: tuple[int, ...]
) -> None:
    assert own_sizes(sizes, captured, at_least) == expected


def test_between_two_own_sizes_a_batch_has_its_share_of_both() -> None:
    design = Design(own_bs=(4, 8), has_max_context=True)
    rows = FUSED.rows([point("fused", [(5, 0)], [100])], design)
    assert own_columns(rows, design).tolist() == [[0.5, 0.5]]
