from __future__ import annotations

import math

import numpy as np
import pytest
from engines import request

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.engine.core.types import Decision, Mode, Reason
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase


def collected(times: dict[str, list[float]], *requests: EmulatedRequest) -> Collector:
    collector = Collector(requests, tbt_s=0.05)
    collector.attach(lambda r: np.array(times.get(r.request_id, [])))
    return collector


def ended(r: EmulatedRequest, phase: Phase, at_s: float) -> EmulatedRequest:
    r.phase, r.end_s = phase, at_s
    return r


def test_times_become_columns_when_requests_end_out_of_order() -> None:
    first = request("0", 10, 3, arrival_s=1.0, tenant="b")
    second = request("1", 20, 1, arrival_s=2.0, tenant="a")
    collector = collected({"0": [1.5, 1.54, 1.64], "1": [2.25]}, first, second)
    collector.on_end(ended(second, Phase.FINISHED, 2.25), 2.25)
    collector.on_end(ended(first, Phase.FINISHED, 1.64), 1.64)
    columns = collector.outcomes()
    assert collector.ended == 2
    assert columns.ttft_s.tolist() == pytest.approx([0.5, 0.25])
    assert columns.gaps_s.tolist() == pytest.approx([0.04, 0.10])
    assert columns.gaps_met.tolist() == [1, 0]
    assert columns.gap_max_s.tolist() == pytest.approx([0.10, 0.0])
    assert columns.produced_tokens.tolist() == [3, 1]
    assert (columns.tenants, columns.tenant.tolist()) == (("a", "b"), [1, 0])
    assert columns.finished.tolist() == [True, True]


def test_what_it_got_is_kept_when_a_request_never_ends() -> None:
    open_ended = request("0", 10, 5)
    failed = request("1", 10, 5)
    collector = collected({"0": [1.0, 1.2]}, open_ended, failed)
    collector.on_end(ended(failed, Phase.FAILED, 0.0), 0.0)
    columns = collector.outcomes()
    assert columns.ttft_s.tolist() == [1.0, math.inf]
    assert columns.gaps_s.tolist() == pytest.approx([0.2])
    assert columns.end_s.tolist() == [math.inf, 0.0]
    assert (columns.finished.tolist(), columns.failed.tolist()) == ([False, False], [False, True])


def test_step_time_is_handed_over_once_when_taken() -> None:
    collector = collected({})
    decision = Decision(mode=Mode.SPLIT, partition_id=0, reason=Reason.BEST_FIT)
    collector.on_step(decision, 1.0, 1.5)
    collector.on_step(decision, 2.0, 2.25)
    assert collector.take_reasons() == {"best_fit": 0.75}
    assert collector.take_reasons() == {}
