from __future__ import annotations

import pytest

from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.emulator.graphs import captured_bs, padded


@pytest.mark.parametrize(
    ("bs", "graph"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 24), (250, 256)]
)
def test_the_next_captured_size_is_replayed_when_a_batch_lies_between(bs: int, graph: int) -> None:
    assert captured_bs(bs) == graph
    assert padded(DecodeShape(bs=bs, reused_tokens=777)) == DecodeShape(bs=graph, reused_tokens=777)
