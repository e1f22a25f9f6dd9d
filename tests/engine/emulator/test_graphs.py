from __future__ import annotations

import pytest

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import DecodeShape, PrefillGraph, PrefillShape
from pdmuxd.engine.emulator.graphs import captured_bs, padded, padded_prefill


@pytest.mark.parametrize(
    ("bs", "graph"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 24), (250, 256)]
)
def test_the_next_captured_size_is_replayed_when_a_batch_lies_between(bs: int, graph: int) -> None:
    assert captured_bs(bs) == graph
    assert padded(DecodeShape(bs=bs, reused_tokens=777)) == DecodeShape(bs=graph, reused_tokens=777)


def test_every_row_is_padded_when_a_prefill_is_captured() -> None:
    shape = padded_prefill([(100, 50), (128, 10), (1, 0)], PrefillGraph(length=128, batch=4))
    assert shape == PrefillShape.of([(128, 50), (128, 10), (128, 0), (128, 0)])


def test_the_standard_kernel_is_left_when_a_batch_does_not_fit_its_graph() -> None:
    assert padded_prefill([(129, 0)], PrefillGraph(length=128, batch=1)) is None
    assert padded_prefill([(1, 0), (1, 0)], PrefillGraph(length=128, batch=1)) is None
    assert padded_prefill([], PrefillGraph(length=128, batch=1)) is None


@pytest.mark.parametrize("graph", [PrefillGraph(length=100, batch=1), PrefillGraph(length=128, batch=3)])
def test_an_uncaptured_graph_is_a_defect(graph: PrefillGraph) -> None:
    with pytest.raises(EngineInvariantError, match="no prefill graph"):
        padded_prefill([(1, 0)], graph)
