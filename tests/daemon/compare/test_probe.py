from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replays import plan, replayed

from pdmuxd.daemon.compare.probe import Probe, allowed_misses, holds, probe
from pdmuxd.daemon.compare.workload import draw
from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.slo import DEFAULT_SLO, Slo

OF = plan(40)


def rounded(value: object) -> object:
    """Sums over time differ in their last digits with the instants at which an engine is looked at."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return value if value is None or isinstance(value, str | int) else rounded(msgspec.to_builtins(value))


def run(
    rate_rps: float, slo: Slo = DEFAULT_SLO, kv_capacity_tokens: int | None = None, seconds: float = 10.0
):
    of = plan(40, kv_capacity_tokens=kv_capacity_tokens)
    trace = draw(of.trace, rate_rps=rate_rps, seconds=seconds, seed=1, shuffle=True)
    return replace(of, trace=trace, slo=slo)


def slo(ttft_s: float, tbt_s: float, attainment: float = 0.9) -> Slo:
    return Slo(ttft_fixed_s=ttft_s, ttft_per_1k_new_tokens_s=0.01, tbt_s=tbt_s, attainment_ratio=attainment)


@pytest.mark.parametrize("policy", ["muxwise", "chunked:512", "prefill-first"])
def test_metrics_are_those_of_a_replay_when_the_run_is_not_given_up(policy: str) -> None:
    of = run(8.0)
    found = probe(of, policy, 8.0, give_up=False)
    assert rounded(found.metrics) == rounded(replayed(of, policy)[0].metrics)
    assert found.good_ratio == found.metrics.good_ratio
    assert not found.gave_up


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    rate_rps=st.floats(2.0, 60.0),
    ttft_s=st.sampled_from([0.01, 0.05, 0.2, 1.0]),
    tbt_s=st.sampled_from([0.007, 0.012, 0.03]),
    attainment=st.sampled_from([0.5, 0.9, 0.99]),
    policy=st.sampled_from(["muxwise", "chunked:512", "prefill-first"]),
    kv_capacity_tokens=st.sampled_from([None, 9000]),
)
def test_giving_up_changes_no_verdict_when_a_run_is_probed(
    rate_rps: float,
    ttft_s: float,
    tbt_s: float,
    attainment: float,
    policy: str,
    kv_capacity_tokens: int | None,
) -> None:
    of = run(rate_rps, slo(ttft_s, tbt_s, attainment), kv_capacity_tokens, seconds=4.0)
    whole = probe(of, policy, rate_rps, give_up=False)
    early = probe(of, policy, rate_rps)
    assert holds(early, of.slo) == holds(whole, of.slo)
    assert early.good_ratio >= whole.good_ratio - 1e-12
    assert early.gave_up == (not holds(whole, of.slo))
    assert whole.metrics is not None


def test_a_hopeless_run_is_given_up_long_before_its_end_when_probed() -> None:
    of = run(2000.0, slo(0.05, 0.03))
    found = probe(of, "chunked:128", 2000.0)
    assert found.gave_up
    assert found.metrics is None
    assert found.good_ratio > 0.2  # most were never looked at


@pytest.mark.parametrize(("requests", "allowed"), [(1, 0), (99, 0), (100, 1), (720, 7), (1000, 10)])
def test_misses_are_rounded_down_when_they_are_allowed(requests: int, allowed: int) -> None:
    assert allowed_misses(requests, DEFAULT_SLO) == allowed


def test_an_exact_share_holds_when_it_is_the_attainment() -> None:
    found = Probe(rate_rps=1.0, requests=100, good_ratio=0.99, metrics=None)
    assert holds(found, DEFAULT_SLO)
    assert not holds(replace_ratio(found, 0.98), DEFAULT_SLO)


def replace_ratio(found: Probe, ratio: float) -> Probe:
    return Probe(rate_rps=found.rate_rps, requests=found.requests, good_ratio=ratio, metrics=None)


def test_the_error_is_the_registry_s_when_a_policy_is_unknown() -> None:
    with pytest.raises(PolicyError, match="known are auto"):
        probe(run(2.0), "fastest", 2.0)
