"""Metrics against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.replay.metrics import measure
from pdmuxd.daemon.replay.outcomes import EngineTotals, Outcomes, nearest_rank
from pdmuxd.engine.core.slo import Slo

SLO = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.050, attainment_ratio=0.99)


def outcomes(*rows: dict[str, object]) -> Outcomes:
    """Each row: arrival, input, reused, output, ttft, gaps; `lost` requests never finish."""

    def column(name: str, default: object = 0) -> list[object]:
        return [row.get(name, default) for row in rows]

    gaps = [np.array(row.get("gaps", []), dtype=np.float64) for row in rows]
    ttft_s = np.array(column("ttft", math.inf), dtype=np.float64)
    produced = [len(g) + 1 if math.isfinite(t) else 0 for g, t in zip(gaps, ttft_s, strict=True)]
    tenants = tuple(sorted({str(row.get("tenant", "t")) for row in rows}))
    return Outcomes(
        arrival_s=np.array(column("arrival"), dtype=np.float64),
        input_tokens=np.array(column("input", 100), dtype=np.int64),
        output_tokens=np.array(column("output", 1), dtype=np.int64),
        produced_tokens=np.array(produced, dtype=np.int64),
        reused_tokens=np.array(column("reused"), dtype=np.int64),
        ttft_s=ttft_s,
        gap_p99_s=np.array([nearest_rank(g, 990) for g in gaps]),
        gap_max_s=np.array([g.max(initial=0.0) for g in gaps]),
        gaps_met=np.array([int((g <= 0.050 + 1e-9).sum()) for g in gaps], dtype=np.int64),
        end_s=np.zeros(len(rows)),
        finished=np.array([not row.get("lost") and not row.get("failed") for row in rows]),
        failed=np.array([bool(row.get("failed")) for row in rows]),
        tenants=tenants,
        tenant=np.array([tenants.index(str(row.get("tenant", "t"))) for row in rows], dtype=np.int64),
        gaps_s=np.concatenate(gaps).astype(np.float32),
    )


def totals(end_s: float = 10.0, **counts: float) -> EngineTotals:
    kept = {
        "steps": 0,
        "switches": 0,
        "preemptions": 0,
        "retractions": 0,
        "prefill_sm_s": 0,
        "decode_sm_s": 0,
    }
    return EngineTotals(total_sms=100, end_s=end_s, **(kept | counts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("permille", "expected"),
    [(500, 5.0), (501, 6.0), (900, 9.0), (990, 10.0), (999, 10.0), (1000, 10.0), (1, 1.0)],
)
def test_the_nearest_rank_is_taken_when_values_are_ten(permille: int, expected: float) -> None:
    values = np.array([10.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0])
    assert nearest_rank(values, permille) == expected


def test_the_rank_is_exact_when_values_are_a_thousand() -> None:
    values = np.arange(1, 1001, dtype=np.float64)
    assert [nearest_rank(values, p) for p in (500, 900, 990, 999, 1000)] == [500, 900, 990, 999, 1000]


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=60), st.integers(0, 20), st.integers(1, 1000))
def test_the_share_at_or_below_is_just_enough_when_values_are_any(
    values: list[float], missing: int, permille: int
) -> None:
    found = nearest_rank(np.array(values), permille, missing)
    every = values + [math.inf] * missing
    assert found in every
    assert sum(v <= found for v in every) * 1000 >= permille * len(every)
    assert sum(v < found for v in every) * 1000 < permille * len(every)


def test_missing_values_are_infinite_when_ranked() -> None:
    values = np.array([1.0, 2.0, 3.0])
    assert nearest_rank(values, 500, missing=1) == 2.0
    assert nearest_rank(values, 990, missing=1) == math.inf
    assert nearest_rank(np.zeros(0), 990) == 0.0


def test_latencies_are_in_milliseconds_when_measured() -> None:
    m = measure(
        outcomes(
            {"ttft": 0.2, "output": 3, "gaps": [0.010, 0.030]},
            {"ttft": 0.4, "output": 2, "gaps": [0.020], "arrival": 2.0},
        ),
        totals(),
        SLO,
    )
    assert (m.ttft.p50_ms, m.ttft.p99_ms, m.ttft.max_ms) == (200.0, 400.0, 400.0)
    assert m.tbt.p50_ms == pytest.approx(20.0)
    assert m.tbt.max_ms == pytest.approx(30.0)
    assert (m.arrival_span_s, m.makespan_s) == (2.0, 10.0)


def test_the_target_follows_uncached_tokens_when_ttft_is_judged() -> None:
    # 3,000 tokens of which 1,000 are cached: due after 1 + 2 seconds.
    on_time = {"input": 3000, "reused": 1000, "ttft": 3.0}
    late = {"input": 3000, "reused": 1001, "ttft": 3.0}
    m = measure(outcomes(on_time, late), totals(), SLO)
    assert m.ttft_attainment_ratio == 0.5
    assert m.ttft_per_1k_new_tokens_p99_ms == pytest.approx(3000.0 / 1.999)
    assert m.cache_hit_ratio == pytest.approx(2001 / 6000)


def test_gaps_on_the_target_are_met_when_judged() -> None:
    m = measure(outcomes({"ttft": 0.1, "output": 4, "gaps": [0.050, 0.0500000001, 0.051]}), totals(), SLO)
    assert m.tbt_attainment_ratio == pytest.approx(2 / 3)


def test_one_late_gap_in_a_hundred_is_good_but_not_strictly_when_judged() -> None:
    hundred = {"ttft": 0.1, "output": 101, "gaps": [0.010] * 99 + [0.2]}
    ninety_nine = {"ttft": 0.1, "output": 100, "gaps": [0.010] * 98 + [0.2]}
    m = measure(outcomes(hundred, ninety_nine), totals(), SLO)
    assert (m.good_ratio, m.good_strict_ratio) == (0.5, 0.0)


def test_one_late_gap_is_forgiven_and_no_second_one_when_judged() -> None:
    one_of_ten = {"ttft": 0.1, "output": 11, "gaps": [0.010] * 9 + [0.2]}
    two_of_ten = {"ttft": 0.1, "output": 11, "gaps": [0.010] * 8 + [0.2] * 2}
    first_late = {"ttft": 30.0, "output": 11, "gaps": [0.010] * 10}
    two_of_101 = {"ttft": 0.1, "output": 102, "gaps": [0.010] * 99 + [0.2] * 2}
    two_of_100 = {"ttft": 0.1, "output": 101, "gaps": [0.010] * 98 + [0.2] * 2}
    only = {"ttft": 0.1, "output": 2, "gaps": [0.2]}
    lost = {"ttft": 0.1, "output": 3, "gaps": [0.01], "lost": True}

    def of(*requests: dict[str, Any]) -> tuple[float, float]:
        found = measure(outcomes(*requests), totals(), SLO)
        return found.good_ratio, found.good_forgiven_ratio

    assert of(one_of_ten) == of(only) == of(two_of_101) == (0.0, 1.0)
    assert of(two_of_ten) == of(first_late) == of(two_of_100) == of(lost) == (0.0, 0.0)


def test_a_single_token_has_no_gap_to_miss_when_judged() -> None:
    m = measure(outcomes({"ttft": 0.1, "output": 1}), totals(), SLO)
    assert (m.tbt_attainment_ratio, m.good_ratio, m.good_strict_ratio) == (1.0, 1.0, 1.0)
    assert m.tbt.max_ms == 0.0


def test_lost_requests_stay_in_every_denominator_when_judged() -> None:
    m = measure(
        outcomes(
            {"ttft": 0.1, "output": 3, "gaps": [0.01, 0.01]},
            {"ttft": 0.1, "output": 3, "gaps": [0.01], "lost": True},  # cut off after two of three tokens
            {"output": 5, "failed": True},
            {"output": 1, "lost": True},
        ),
        totals(),
        SLO,
    )
    assert (m.requests, m.finished, m.failed, m.unfinished) == (4, 1, 1, 2)
    assert m.ttft_attainment_ratio == 0.25
    assert m.tbt_attainment_ratio == 2 / 8
    assert (m.good_ratio, m.good_strict_ratio) == (0.25, 0.25)
    assert (m.ttft.p50_ms, m.ttft.p90_ms) == (100.0, math.inf)
    # 3 gaps came of the 8 that were owed.
    assert m.tbt.p50_ms == math.inf
    assert m.by_input_tokens[0].requests == 4
    assert m.by_input_tokens[0].good_ratio == 0.25


def test_goodput_is_over_the_arrivals_and_throughput_over_the_makespan_when_measured() -> None:
    m = measure(
        outcomes(
            {"arrival": 1.0, "input": 400, "ttft": 0.1, "output": 11, "gaps": [0.01] * 10},
            {"arrival": 5.0, "input": 600, "ttft": 9.0, "output": 21, "gaps": [0.01] * 20},
        ),
        totals(end_s=11.0),
        SLO,
    )
    assert m.goodput_requests_per_s == 1 / 4
    assert m.goodput_output_tokens_per_s == 11 / 4
    assert m.throughput_requests_per_s == 2 / 10
    assert m.input_tokens_per_s == 1000 / 10
    assert m.output_tokens_per_s == 32 / 10


def test_goodput_is_over_the_makespan_when_all_arrive_at_once() -> None:
    m = measure(outcomes({"ttft": 0.1}, {"ttft": 0.1}), totals(end_s=4.0), SLO)
    assert m.goodput_requests_per_s == 0.5


def test_sm_shares_are_of_the_makespan_when_measured() -> None:
    m = measure(outcomes({"ttft": 0.1}), totals(end_s=10.0, prefill_sm_s=300.0, decode_sm_s=200.0), SLO)
    assert (m.prefill_sm_ratio, m.decode_sm_ratio, m.idle_sm_ratio) == pytest.approx((0.3, 0.2, 0.5))


@pytest.mark.parametrize(("ratio", "met"), [(0.99, True), (0.995, False)])
def test_targets_are_met_when_both_attainments_reach_the_ratio(ratio: float, met: bool) -> None:
    slo = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=0.0, tbt_s=0.050, attainment_ratio=ratio)
    rows = [{"ttft": 0.1, "output": 2, "gaps": [0.01]}] * 99 + [{"ttft": 2.0, "output": 2, "gaps": [0.01]}]
    assert measure(outcomes(*rows), totals(), slo).targets_met is met


def test_requests_are_in_the_class_of_their_prompt_when_grouped() -> None:
    lengths = [1, 999, 1000, 3999, 4000, 15999, 16000, 200000]
    m = measure(outcomes(*({"input": n, "ttft": 0.1} for n in lengths)), totals(), SLO)
    assert [(g.name, g.requests) for g in m.by_input_tokens] == [
        ("<1K", 2),
        ("1K-4K", 2),
        ("4K-16K", 2),
        (">=16K", 2),
    ]


def test_requests_are_in_the_quarter_of_their_new_tokens_when_grouped() -> None:
    rows = [{"input": 100 + 10 * n, "reused": 50, "ttft": 0.1 if n < 6 else 9.0} for n in range(8)]
    m = measure(outcomes(*rows), totals(), SLO)
    assert [(g.name, g.requests, g.ttft_attainment_ratio) for g in m.by_new_tokens_quarter] == [
        ("shortest quarter", 2, 1.0),
        ("second quarter", 2, 1.0),
        ("third quarter", 2, 1.0),
        ("longest quarter", 2, 0.0),
    ]
    same = measure(outcomes(*({"input": 100, "ttft": 0.1} for _ in range(4))), totals(), SLO)
    assert [g.requests for g in same.by_new_tokens_quarter] == [4, 0, 0, 0]


def test_lateness_is_what_comes_beyond_the_own_target_when_measured() -> None:
    m = measure(
        outcomes(
            {"input": 1000, "ttft": 1.9},  # in time: 2 s
            {"input": 1000, "ttft": 2.5},
            {"input": 2000, "ttft": 5.0},
            {"input": 1000, "failed": True},
        ),
        totals(),
        SLO,
    )
    assert m.late_requests == 3
    assert (m.late_by.p50_ms, m.late_by.max_ms) == (pytest.approx(2000.0), math.inf)
    assert measure(outcomes({"ttft": 0.1}), totals(), SLO).late_requests == 0


def test_tenants_are_told_apart_when_grouped() -> None:
    m = measure(
        outcomes({"tenant": "b", "ttft": 0.1}, {"tenant": "a", "ttft": 99.0}, {"tenant": "b", "ttft": 99.0}),
        totals(),
        SLO,
    )
    assert [(g.name, g.requests, g.good_ratio) for g in m.by_tenant] == [("a", 1, 0.0), ("b", 2, 0.5)]
