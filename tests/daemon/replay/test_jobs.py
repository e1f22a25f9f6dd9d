from __future__ import annotations

import pytest
from replays import plan

from pdmuxd.daemon.replay.jobs import replay_policies
from pdmuxd.engine.core.errors import PolicyError


def test_results_are_the_same_and_in_order_when_replayed_in_processes() -> None:
    of, policies = plan(20), ["muxwise", "chunked:512", "upstream"]
    serial_seen: set[int] = set()
    pool_seen: set[int] = set()
    serial = replay_policies(of, policies, 1, lambda index, done, now_s: serial_seen.add(index))
    pooled = replay_policies(of, policies, 2, lambda index, done, now_s: pool_seen.add(index))
    assert [r.policy for r in pooled] == policies
    assert [r.metrics for r in pooled] == [r.metrics for r in serial]
    assert serial_seen == {0, 1, 2}
    assert pool_seen == {0, 1, 2}


def test_the_error_comes_through_when_a_process_raises_it() -> None:
    with pytest.raises(PolicyError, match="unknown policy 'fastest'"):
        replay_policies(plan(3), ["muxwise", "fastest"], 2, lambda index, done, now_s: None)
