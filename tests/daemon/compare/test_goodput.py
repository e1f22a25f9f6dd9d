from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons import plan

from pdmuxd.daemon.compare.goodput import find_goodput, prefill_capacity_rps
from pdmuxd.daemon.compare.plan import FEWEST_EXPECTED, Cell
from pdmuxd.daemon.compare.probe import holds, probe

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
