"""Where a campaign measures: in the region that serves."""

from __future__ import annotations

import msgspec
import pytest
from profiling import target_of

from pdmuxd.engine.core.latency import padded_bs
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling.measurement import Target
from pdmuxd.engine.profiling.serving_design import fused_design, prefill_design

GRAPHS = (2, 8, 32, 64, 128, 256, 512, 768, 832, 1024, 1280, 1536, 2048, 4096)


def target(graphs: tuple[int, ...] = GRAPHS, kv: int | None = None) -> Target:
    found = target_of(load_profile("h200-llama-8b"), fused_tokens=graphs)
    hello = found.hello
    return Target.of(msgspec.structs.replace(hello, kv_capacity_tokens=kv or hello.kv_capacity_tokens))


def test_every_graph_is_measured_with_few_and_with_many_when_fused_batches_are_planned() -> None:
    points = fused_design(target())
    for size in GRAPHS[2:-1]:
        requests = [len(p.decode) for p in points if p.prefill_shape.new_tokens + len(p.decode) == size]
        assert len(requests) >= 2
        assert max(requests) >= min(2 * min(requests), size // 2)
    assert all(padded_bs(p.prefill_shape.new_tokens + len(p.decode), GRAPHS) < 4096 for p in points)


def test_busy_steps_come_first_and_more_often_when_fused_batches_are_planned() -> None:
    points = fused_design(target())
    busy = [p for p in points if p.prefill_shape.new_tokens >= 300 and 64 <= len(p.decode) <= 200]
    assert len(busy) >= 14
    assert busy[:10] == points[:10]
    assert {p.prefill_shape.bs for p in busy} >= {1, 2, 4}


@pytest.mark.parametrize("kv", [20_000, 300_000])
def test_contexts_are_cut_to_what_the_pool_holds(kv: int) -> None:
    assert all(p.kv_tokens <= 0.9 * kv for p in fused_design(target(kv=kv)) if len(p.decode) > 1)


def test_long_prefills_are_spread_over_sm_counts_and_short_ones_are_on_each() -> None:
    found = {sms: prefill_design(target(), sms) for sms in target().prefill_sizes}
    longest = [max(p.prefill_shape.new_tokens for p in points) for points in found.values()]
    assert len(set(longest)) == min(6, len(found)), "each another one, by turns"
    for points in found.values():
        assert {32, 512, 1024} <= {p.prefill_shape.new_tokens for p in points}
        assert any(p.prefill_shape.reused_tokens for p in points)
        assert any(p.prefill_shape.bs > 1 for p in points)
