"""How much of a product is timed."""

import itertools

import pytest

from pdmuxd.engine.sglang.streams.gemm_timing import layers_to_time, typical_s

GATE_UP, QKV, OUT = 2 * 4096 * 28672, 2 * 4096 * 6144, 2 * 4096 * 4096  # Llama-8B, bf16


@pytest.mark.parametrize(
    ("rows", "weight_bytes", "layers"),
    [(8192, GATE_UP, 1), (8192, QKV, 2), (1024, OUT, 3), (1024, 1024, 4), (256, GATE_UP, 4)],
)
def test_a_graph_has_more_weights_than_the_cache_holds_and_no_more(rows, weight_bytes, layers):
    assert layers_to_time(rows, weight_bytes) == layers


def test_a_way_is_replayed_again_unless_it_is_clearly_slower():
    taken = []

    def replay_s():
        taken.append(next(times))
        return taken[-1]

    times = itertools.chain([1.0, 9.0, 1.2])
    assert typical_s(replay_s, best_s=float("inf")) == 1.2
    times = itertools.chain([1.05, 0.9, 0.8])
    assert typical_s(replay_s, best_s=1.0) == 0.9
    taken.clear()
    times = itertools.chain([1.2, 0.1])
    assert typical_s(replay_s, best_s=1.0) == 1.2
    assert taken == [1.2]
