from __future__ import annotations

import pytest
from comparisons import plan

from pdmuxd.daemon.compare.stages import CURVE, compare
from pdmuxd.engine.core.errors import PolicyError

pytestmark = pytest.mark.slow

POLICIES = ["muxwise", "chunked:256"]


class Log:
    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.count: list[int] = []
        self.labels: set[str] = set()

    def stage(self, title: str, tasks: int) -> None:
        self.stages.append((title, tasks))
        self.count.append(0)

    def trying(self, label: str) -> None:
        self.labels.add(label)

    def done(self) -> None:
        self.count[-1] += 1


def test_results_are_the_same_when_runs_are_spread_over_processes() -> None:
    serial = compare(plan(), POLICIES, [0.02], jobs=1)
    pooled = compare(plan(), POLICIES, [0.02], jobs=2)
    assert serial.cells == pooled.cells
    assert [cell.policy for cell in pooled.cells] == POLICIES


def test_every_stage_is_followed_to_its_end_when_details_are_asked_for() -> None:
    log = Log()
    found = compare(plan(), POLICIES, [0.02, 0.05], detail=True, progress=log)
    assert log.stages == [("goodput", 4), ("attainment", 4 * len(CURVE)), ("common rate", 4)]
    assert log.count == [tasks for _, tasks in log.stages]
    assert any(label.startswith("muxwise, TBT 20 ms, ") for label in log.labels)
    assert len(found.curve) == 4 * len(CURVE)
    for common in found.common:
        best = max(sum(s.rate_rps for s in c.seeds) / 2 for c in found.cells if c.tbt_s == common.tbt_s)
        assert common.rate_rps == pytest.approx(best)
        assert [replay.policy for replay in common.replays] == POLICIES


def test_nothing_but_goodput_is_run_when_details_are_not_asked_for() -> None:
    found = compare(plan(seeds=(0,)), ["chunked:256"], [0.02])
    assert (found.curve, found.common) == ((), ())


def test_goodput_is_the_highest_rate_that_held_when_rates_are_given() -> None:
    found = compare(plan(seconds=2.0), ["chunked:256"], [0.02], rates_rps=[400.0, 5.0, 2.0])
    assert [seed.rate_rps for seed in found.cells[0].seeds] == [5.0, 5.0]
    assert len(found.curve) == 6
    assert all(probe.metrics is not None for _, probe in found.curve)


def test_the_error_comes_through_when_a_worker_raises_it() -> None:
    with pytest.raises(PolicyError, match="unknown policy 'fastest'"):
        compare(plan(), ["muxwise", "fastest"], [0.02], jobs=2)
