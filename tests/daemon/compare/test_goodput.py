from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons import plan

from pdmuxd.daemon.compare.goodput import find_goodput, prefill_capacity_rps
from pdmuxd.daemon.compare.plan import FEWEST_EXPECTED, Cell
from pdmuxd.daemon.compare.probe import holds, probe

pytestmark = pytest.mark.slow

CELL = Cell(policy="muxwise", tbt_s=0.02)


def test_the_rate_holds_and_the_next_does_not_when_a_goodput_is_found() -> None:
    of = plan(seconds=2.0)
    found = find_goodput(of, CELL, lambda rate_rps: None)
    for seed in found.seeds:
        assert seed.metrics is not None
        assert seed.metrics.good_ratio >= of.attainment_ratio
        above = seed.rate_rps * (1.0 + of.resolution)
        assert holds(probe(of.run(seed.rate_rps, 0.02, seed.seed), "muxwise", seed.rate_rps), of.slo(0.02))
        assert not holds(probe(of.run(above, 0.02, seed.seed), "muxwise", above), of.slo(0.02))


def test_probes_are_all_reported_and_kept_in_order_when_a_goodput_is_found() -> None:
    tried: list[float] = []
    found = find_goodput(plan(seeds=(3,)), CELL, tried.append)
    rates = [p.rate_rps for p in found.seeds[0].probes]
    assert rates == sorted(tried)
    assert all(p.metrics is None for p in found.seeds[0].probes)


def test_seeds_are_searched_alike_when_others_come_before_them() -> None:
    together = find_goodput(plan(seeds=(0, 1)), CELL, lambda rate_rps: None)
    alone = find_goodput(plan(seeds=(1,)), CELL, lambda rate_rps: None)
    assert together.seeds[1].rate_rps == pytest.approx(alone.seeds[0].rate_rps, rel=0.21)


def test_the_goodput_is_zero_when_no_rate_holds() -> None:
    of = plan(ttft_fixed_s=0.001)
    found = find_goodput(replace(of, ttft_per_1k_new_tokens_s=0.0), CELL, lambda rate_rps: None)
    assert [(s.rate_rps, s.metrics) for s in found.seeds] == [(0.0, None)] * 2
    assert min(p.rate_rps for p in found.seeds[0].probes) >= FEWEST_EXPECTED / of.seconds


def test_the_search_begins_near_what_prefill_can_do_when_nothing_is_known() -> None:
    capacity_rps = prefill_capacity_rps(plan())
    assert 20 < capacity_rps < 200  # about 1,100 tokens each, some 40 ms per 1,000 tokens or less


def test_a_longer_run_lowers_the_rate_when_the_queue_had_not_grown_yet() -> None:
    of = plan(seconds=1.0, seeds=(0,), ttft_fixed_s=0.5)
    short = find_goodput(of, CELL, lambda rate_rps: None).seeds[0]
    doubled = find_goodput(replace(of, doublings=3), CELL, lambda rate_rps: None).seeds[0]
    assert short.stands is None
    assert short.seconds == 1.0
    assert 0 < doubled.rate_rps < short.rate_rps
    assert doubled.stands
    assert doubled.seconds in {2.0, 4.0, 8.0}
    longest = replace(of, seconds=doubled.seconds)
    assert holds(probe(longest.run(doubled.rate_rps, 0.02, 0), "muxwise", doubled.rate_rps), of.slo(0.02))
    again = longest.run(short.rate_rps, 0.02, 0)
    assert not holds(probe(again, "muxwise", short.rate_rps), of.slo(0.02))


def test_no_run_is_doubled_again_once_a_rate_stands() -> None:
    of = replace(plan(seconds=8.0, seeds=(0, 1), ttft_fixed_s=0.02), doublings=4)
    found = find_goodput(of, CELL, lambda rate_rps: None)
    assert all(seed.stands for seed in found.seeds)
    assert min(seed.seconds for seed in found.seeds) == 16.0
    for seed in found.seeds:
        held = [run for run in seed.probes if run.rate_rps == seed.rate_rps and not run.gave_up]
        assert max(run.requests for run in held) == pytest.approx(seed.rate_rps * seed.seconds, rel=0.2)
