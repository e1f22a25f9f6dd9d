"""The roofline, worked out by hand for a model so small that its operators can be written down.

Per layer and token the four linear operators are (in x out) 4 x 8, 4 x 4, 4 x 16 and 8 x 4: 64, 32, 128 and
64 FLOPs, 24, 16, 40 and 24 bytes of activations, and 64, 32, 128 and 64 bytes of weights. A token's KV is 8
bytes a layer, its query 16, a pair of tokens 20 FLOPs. The classifier has 128 bytes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.roofline import COLOCATED_SLOPE, RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import NO_DECODE, DecodeShape, PrefillShape

NOTHING = Overheads(graph_launch_s=0.0, layer_launch_s=0.0, host_step_s=0.0, layer_fixed_s=0.0, switch_s=0.0)
MODEL = RooflineModel(
    model=ModelShape(
        name="tiny",
        layers=2,
        hidden=4,
        intermediate=8,
        heads=2,
        kv_heads=1,
        head_dim=2,
        vocab=16,
        max_context_tokens=1000,
    ),
    device=DeviceShape(
        name="a GPU of 10 SMs",
        total_sms=10,
        min_sms=1,
        multiple_sms=1,
        flops=100.0,
        bytes_per_s=100.0,
        bandwidth_curvature=1e-9,
    ),
    overheads=NOTHING,
)
FAST = replace(MODEL, device=replace(MODEL.device, flops=1000.0))
"""So many FLOP/s that all of a decode step waits for memory."""
DECODE = DecodeShape.of([3])
PREFILL = PrefillShape.of([(10, 5)])


def test_a_decode_step_takes_what_it_moves_when_compute_is_plenty() -> None:
    # 88 + 48 + 168 + 88 bytes of the operators and 48 of attention, twice; then the classifier.
    cost = FAST.decode_cost(DECODE, 10)
    assert cost.hbm_bytes == pytest.approx(2 * 440 + 128)
    assert cost.seconds == pytest.approx(10.08)


def test_a_prefill_takes_what_it_computes_when_it_has_many_tokens() -> None:
    # 640 + 320 + 1280 + 640 FLOPs, and 100 pairs of tokens: half of 10 x 10, and 10 x 5.
    cost = MODEL.prefill_cost(PREFILL, 10)
    assert cost.seconds == pytest.approx(2 * (28.8 + 20.0) + 1.28)
    assert cost.hbm_bytes == pytest.approx(2 * (304 + 192 + 528 + 304 + 280) + 128)


def test_half_the_sms_take_twice_as_long_when_nothing_is_curved() -> None:
    assert MODEL.prefill_cost(PREFILL, 5).seconds == pytest.approx(
        2 * MODEL.prefill_cost(PREFILL, 10).seconds
    )


def test_the_shorter_part_counts_by_its_share_when_it_is_not_hidden() -> None:
    serial = replace(MODEL, device=replace(MODEL.device, serial_ratio=0.5))
    hidden_s = 2 * (3.04 + 1.92 + 5.28 + 3.04 + 2.8) + 1.28
    assert serial.prefill_cost(PREFILL, 10).seconds == pytest.approx(98.88 + 0.5 * hidden_s)
    serial = replace(FAST, device=replace(FAST.device, serial_ratio=0.5))
    hidden_s = 2 * (0.064 + 0.032 + 0.128 + 0.064 + 0.08) + 0.128
    assert serial.decode_cost(DECODE, 10).seconds == pytest.approx(10.08 + 0.5 * hidden_s)


def test_a_fused_batch_reads_its_weights_once() -> None:
    together = FAST.fused_cost(PREFILL, DECODE, 10)
    apart_bytes = FAST.prefill_cost(PREFILL, 10).hbm_bytes + FAST.decode_cost(DECODE, 10).hbm_bytes
    assert together.hbm_bytes == pytest.approx(apart_bytes - 2 * (64 + 32 + 128 + 64) - 128)


def test_one_sm_reads_a_long_context_alone_when_attention_is_by_tiles() -> None:
    tiles = replace(MODEL, fused_tile_rows=8)
    decode = DecodeShape.of([500])
    # 500 tokens x 4 x 8 rows x 2 of a head on one SM, of 10 FLOP/s; longer than all of attention on ten.
    linear_s = sum(
        max(11 * f / 100, (11 * b + w) / 100)
        for f, b, w in ((64, 24, 64), (32, 16, 32), (128, 40, 128), (64, 24, 64))
    )
    assert tiles.fused_cost(PREFILL, decode, 10).seconds == pytest.approx(2 * (linear_s + 3200.0) + 2.56)
    assert tiles.decode_cost(decode, 10) == MODEL.decode_cost(decode, 10)
    assert tiles.prefill_cost(PREFILL, 10) == MODEL.prefill_cost(PREFILL, 10)


def test_gpus_share_the_work_and_sum_twice_a_layer() -> None:
    two = replace(MODEL, tensor_parallel=TensorParallel(gpus=2, startup_s=1.0, link_bytes_per_s=50.0))
    # Of the operators 4 x 4, 2 x 4, 4 x 8 and 4 x 4 are left; attention and classifier are halved.
    linear_s = 3.2 + 1.6 + 6.4 + 3.2
    # 10 tokens of 4 values of 2 bytes: 2 s to start, 1.6 s over the link, 1.6 s to add.
    summed_s = 2.0 + 1.6 + 1.6
    assert two.prefill_cost(PREFILL, 10).seconds == pytest.approx(2 * (linear_s + 10.0 + 2 * summed_s) + 0.64)


def test_nothing_takes_no_time() -> None:
    none = MODEL.fused_cost(PrefillShape.of([]), NO_DECODE, 10)
    assert (none.seconds, none.hbm_bytes) == (0.0, 0.0)


def test_launches_and_the_host_are_added_where_they_are_waited_for() -> None:
    slow = replace(MODEL, overheads=replace(NOTHING, graph_launch_s=3.0, host_step_s=4.0, layer_fixed_s=5.0))
    assert slow.decode_s(DECODE, 10) == pytest.approx(MODEL.decode_s(DECODE, 10) + 3.0 + 4.0 + 2 * 5.0)
    assert slow.prefill_s(PREFILL, 10) == pytest.approx(MODEL.prefill_s(PREFILL, 10) + 2 * 5.0)
    assert slow.fused_s(PREFILL, DECODE, 10) == pytest.approx(
        MODEL.fused_s(PREFILL, DECODE, 10) + 3.0 + 2 * 5.0
    )


def test_a_prefill_takes_as_long_as_its_launches_when_they_take_longer() -> None:
    slow = replace(MODEL, overheads=replace(NOTHING, layer_launch_s=100.0))
    assert slow.prefill_s(PREFILL, 10) == 200.0
    assert slow.request_s(10, 5, 10) == 200.0
    assert slow.fused_s(PREFILL, DECODE, 10) == 200.0
    assert slow.fused_s(PrefillShape.of([]), DECODE, 10) == MODEL.fused_s(PrefillShape.of([]), DECODE, 10)


@pytest.mark.parametrize(("graph_tokens", "launched"), [(10, True), (11, False), (12, False)])
def test_a_fused_batch_waits_for_launches_unless_a_graph_holds_it(graph_tokens: int, launched: bool) -> None:
    slow = replace(MODEL, overheads=replace(NOTHING, layer_launch_s=1000.0, fused_graph_tokens=graph_tokens))
    assert (slow.fused_s(PREFILL, DECODE, 10) == 2000.0) == launched


def test_one_request_is_a_prefill_of_it() -> None:
    for sms in (3, 10):
        assert MODEL.request_s(10, 5, sms) == MODEL.prefill_s(PREFILL, sms)


def test_a_prefill_beside_decode_is_slowed_by_decodes_share() -> None:
    assert MODEL.colocated_ratio(10) == 1.0
    assert MODEL.colocated_ratio(4) == pytest.approx(1.0 + COLOCATED_SLOPE * 0.6)
    assert MODEL.colocated_ratio(11) == 1.0


def test_compute_and_memory_of_a_prompt_are_told_apart() -> None:
    terms = MODEL.prefill_terms(10, 5)
    assert (terms.new_tokens, terms.reused_tokens) == (10, 5)
    assert terms.compute_s == pytest.approx(2 * (28.8 + 20.0))
    assert terms.memory_s == pytest.approx(2 * 8 * 15 / 100)
    assert MODEL.prefill_terms(4, 0).memory_s == pytest.approx(2 * 8 * 4 / 100)


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 9))
def test_more_tokens_or_fewer_sms_never_take_less(new: int, reused: int, sms: int) -> None:
    base_s = MODEL.request_s(new, reused, sms)
    assert MODEL.request_s(new + 1, reused, sms) > base_s
    assert MODEL.request_s(new, reused + 1, sms) >= base_s
    assert MODEL.request_s(new, reused, sms + 1) < base_s
