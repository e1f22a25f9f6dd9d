"""Whole replays of small traces on the emulated engine."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from replays import plan, replayed

from pdmuxd.daemon.replay import run
from pdmuxd.daemon.replay.outcomes import nearest_rank
from pdmuxd.daemon.replay.run import replay_policy
from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.replay import drive

POLICIES = ("muxwise", "chunked:512", "upstream", "static:96,36")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_token_is_accounted_for_when_replayed(policy: str) -> None:
    of = plan()
    (result,) = replayed(of, policy)
    m = result.metrics
    assert (m.requests, m.finished, m.failed, m.unfinished) == (40, 40, 0, 0)
    assert m.output_tokens == sum(r.output_tokens for r in of.trace.requests)
    assert m.input_tokens == sum(r.input_tokens for r in of.trace.requests)
    assert 0 < m.reused_tokens < m.input_tokens
    assert m.prefill_sm_ratio + m.decode_sm_ratio + m.idle_sm_ratio == pytest.approx(1.0)
    assert sum(group.requests for group in m.by_input_tokens) == 40
    assert result.timeline.end_s[-1] >= m.makespan_s
    assert np.all(sum(result.timeline.reason_ratio.values()) <= 1.0 + 1e-9)


class _EveryToken:
    """An observer that writes down the instant of every token, one by one."""

    def __init__(self) -> None:
        self.times_s: dict[str, list[float]] = {}

    def on_first_token(self, request, now_s):
        self.times_s.setdefault(request.request_id, []).append(now_s)

    def on_decode_tokens(self, requests, now_s):
        for request in requests:
            self.times_s[request.request_id].append(now_s)

    def on_end(self, request, now_s):
        pass

    def on_step(self, decision, start_s, end_s):
        pass


@pytest.mark.parametrize(("kv_capacity_tokens", "retracts"), [(None, False), (6000, True)])
@pytest.mark.parametrize("policy", POLICIES)
def test_latencies_equal_those_written_down_token_by_token_when_replayed(
    policy: str, kv_capacity_tokens: int | None, retracts: bool
) -> None:
    of = plan(30, kv_capacity_tokens=kv_capacity_tokens, max_output_tokens=600)
    observer = _EveryToken()
    engine = EmulatedEngine(profile=of.profile, policy=policy, observer=observer, block_tokens=512)
    requests = run.emulated(of.trace)
    drive(engine, requests, sample_every_s=1.0, on_sample=lambda now_s: None)
    times = [np.array(observer.times_s[str(i)]) for i in range(30)]
    ttft_s = np.array([t[0] - r.arrival_s for t, r in zip(times, of.trace.requests, strict=True)])
    gaps_s = np.concatenate([np.diff(t) for t in times])

    m = replayed(of, policy)[0].metrics
    assert m.ttft.p90_ms == pytest.approx(nearest_rank(ttft_s, 900) * 1000.0)
    assert m.ttft.max_ms == pytest.approx(ttft_s.max() * 1000.0)
    assert m.tbt.p50_ms == pytest.approx(nearest_rank(gaps_s, 500) * 1000.0, rel=1e-6)
    assert m.tbt.p99_9_ms == pytest.approx(nearest_rank(gaps_s, 999) * 1000.0, rel=1e-6)
    assert m.tbt_attainment_ratio == pytest.approx(float((gaps_s <= 0.050 + 1e-9).mean()))
    assert m.retractions == engine.counters().retractions
    assert (m.retractions > 0) == retracts


def test_the_result_is_the_same_when_replayed_again() -> None:
    first, second = replayed(plan(), "muxwise", "muxwise")
    assert first.metrics == second.metrics
    assert np.array_equal(first.curves.gap_s, second.curves.gap_s)


def test_a_request_over_the_pool_is_a_miss_when_it_gets_past_the_check() -> None:
    of = plan(20, kv_capacity_tokens=1500)
    m = replayed(of, "muxwise")[0].metrics
    too_long = sum(r.input_tokens + r.output_tokens > 1500 for r in of.trace.requests)
    assert m.failed == too_long > 0
    assert m.ttft_attainment_ratio <= 1 - too_long / 20


def test_the_targets_reach_the_engine_when_they_differ_from_the_default() -> None:
    of = plan(80)
    strict = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.012, attainment_ratio=0.9)
    loose = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.5, attainment_ratio=0.9)
    (under_strict,) = replayed(replace(of, slo=strict), "muxwise")
    (under_loose,) = replayed(replace(of, slo=loose), "muxwise")
    assert under_strict.metrics.tbt.p99_ms < under_loose.metrics.tbt.p99_ms


def test_progress_reaches_the_end_when_replayed() -> None:
    seen: list[tuple[int, float]] = []
    replay_policy(plan(), "chunked:512", lambda done, now_s: seen.append((done, now_s)))
    assert seen[0] == (0, 0.0)
    assert seen[-1][0] == 40
    assert seen == sorted(seen)


def test_an_unknown_policy_is_refused_when_replayed() -> None:
    with pytest.raises(PolicyError):
        replayed(plan(1), "fastest")


def test_curves_are_small_and_monotone_when_the_trace_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SCATTER_POINTS", 30)
    curves = replayed(plan(80), "chunked:512")[0].curves
    assert len(curves.scatter_ttft_s) == 30
    assert len(curves.gap_s) <= run.CDF_POINTS
    for values, shares in ((curves.ttft_s, curves.ttft_share), (curves.gap_s, curves.gap_share)):
        assert np.all(np.diff(values) >= 0)
        assert np.all(np.diff(shares) > 0)
        assert shares[-1] == 1.0


def test_metrics_survive_the_trip_when_sent_as_json() -> None:
    m = replayed(plan(10), "upstream")[0].metrics
    assert msgspec.json.decode(msgspec.json.encode(m), type=type(m)) == m
