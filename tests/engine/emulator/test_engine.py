"""The emulated engine under every policy.

Invariant 2: a group changes only where both streams are drained (the engine raises otherwise).
Invariant 3: no more prefills set aside than the limit (the engine raises otherwise).
Invariant 5: every accepted request ends exactly once as finished, aborted or failed.
Invariant 8: KV tokens in equals KV tokens out when idle.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from engines import PROFILE, Memory, engine, request, run_until_idle
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.core.adaptive_batching import DEADLINE_FREE_WAIT_S
from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.slo import DEFAULT_SLO, RequestTargets, Slo
from pdmuxd.engine.core.types import EngineLimits, Mode, PrefillShape, Reason
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.loop.planner import EXPIRY_LOOK_S
from pdmuxd.engine.loop.requests import AT_ONCE_TOKENS, Target

POLICIES = (
    "static:96,36",
    "upstream",
    "chunked:256",
    "prefill-first:512",
    "muxwise",
    "muxwise:preempt",
    "muxwise:whole+blocking",
    "drift",
    "duet:512",
    "auto",
    "pla/muxwise",
    "pla/drift",
    "pla/chunked:256",
    "pla+nodeadline/duet:512",
    "pla/auto",
)

lengths = st.tuples(
    st.one_of(st.integers(1, 300), st.integers(1, 6000)),
    st.integers(1, 60),
    st.floats(0.0, 0.5),
    st.integers(0, 3),
)
workloads = st.lists(lengths, min_size=1, max_size=14)


def make(workload: list[tuple[int, int, float, int]]) -> list[EmulatedRequest]:
    made = []
    for i, (input_tokens, output_tokens, arrival_s, family) in enumerate(workload):
        blocks = -(-input_tokens // 16)
        keys = tuple(family * 100_000 + j for j in range(blocks)) if family else ()
        both = range(input_tokens // 16, (input_tokens + output_tokens) // 16)
        answer_keys = tuple(family * 100_000 + j for j in both) if family else ()
        made.append(
            request(
                f"r{i}",
                input_tokens,
                output_tokens,
                arrival_s=arrival_s,
                block_keys=keys,
                answer_keys=answer_keys,
            )
        )
    return sorted(made, key=lambda r: r.arrival_s)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20, deadline=None)
@given(
    workload=workloads,
    kv_capacity_tokens=st.sampled_from((6100, 9000, 200_000)),
    aborts=st.lists(st.tuples(st.integers(0, 13), st.floats(0.0, 1.0)), max_size=4),
    switch_to=st.sampled_from((None, *POLICIES)),
    tbt_s=st.sampled_from((0.005, 0.012, 0.03, 1.0)),
)
def test_every_request_ends_once_with_its_tokens_when_anything_happens(
    policy: str,
    workload: list[tuple[int, int, float, int]],
    kv_capacity_tokens: int,
    aborts: list[tuple[int, float]],
    switch_to: str | None,
    tbt_s: float,
) -> None:
    memory = Memory()
    emulated = engine(
        policy,
        kv_capacity_tokens=kv_capacity_tokens,
        observer=memory,
        limits=EngineLimits(max_decode_bs=8),
    )
    slos = {"t": slo(tbt_s), "relaxed": slo(max(1.0, tbt_s))}
    emulated.apply_settings(version=1, policy=policy, slos=slos)
    requests = make(workload)
    for r in requests[::2]:
        r.tenant = "relaxed"
    events: list[tuple[float, int, object]] = [(r.arrival_s, 0, r) for r in requests]
    events += [(at_s, 1, f"r{i}") for i, at_s in aborts]
    if switch_to is not None:
        events.append((0.2, 2, switch_to))
    for at_s, kind, what in sorted(events, key=lambda e: (e[0], e[1])):
        if kind == 0:
            assert isinstance(what, EmulatedRequest)
            emulated.submit(what, at_s)
        elif kind == 1:
            emulated.abort(str(what), at_s)
        else:
            emulated.advance(at_s)
            emulated.apply_settings(version=2, policy=str(what), slos=slos)
        emulated.check_integrity()
    run_until_idle(emulated)
    emulated.check_integrity()

    assert sorted(name for name, _, _ in memory.ended) == sorted(r.request_id for r in requests)
    for r in requests:
        times = emulated.token_times(r)
        assert len(times) == memory.tokens.get(r.request_id, 0) == r.produced_tokens
        assert (np.diff(times) > 0.0).all()
        if r.phase is Phase.FINISHED:
            assert r.produced_tokens == r.output_tokens
            assert r.first_token_s == times[0] > r.arrival_s
            assert r.end_s == times[-1]
    counters = emulated.counters()
    assert counters.running == counters.waiting == counters.prefilling == counters.kv_used_tokens == 0
    assert counters.output_tokens == sum(memory.tokens.values())
    for busy_sm_s in (counters.busy_prefill_sm_s, counters.busy_decode_sm_s):
        assert 0.0 <= busy_sm_s <= 132 * emulated.now_s + 1e-6
    if switch_to is not None:
        assert counters.policy == switch_to


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_happens_twice_when_the_workload_is_the_same(policy: str) -> None:
    def run() -> list[tuple[str, str, float]]:
        memory = Memory()
        emulated = engine(policy, observer=memory)
        for r in make([(500 * i + 1, 5 * i + 1, 0.01 * i, i % 3) for i in range(12)]):
            emulated.submit(r, r.arrival_s)
        run_until_idle(emulated)
        return memory.ended

    assert run() == run()


def test_first_token_takes_what_the_profile_says_when_a_prompt_is_alone() -> None:
    emulated = engine("static:96,36")
    alone = request("r", 4000, 1)
    emulated.submit(alone, 0.0)
    run_until_idle(emulated)
    truth = emulated.profile.truth
    assert alone.first_token_s == pytest.approx(truth.prefill_s(PrefillShape.of([(4000, 0)]), 132), rel=0.02)


def test_nothing_is_left_behind_when_a_step_ends_a_rounding_error_later() -> None:
    emulated = engine("chunked:4096")
    for i in range(20):
        emulated.submit(request(f"r{i}", 700, 5), emulated.now_s)
        emulated.advance(emulated.now_s)
        until_s = emulated.next_event_s() - 0.5e-9
        emulated.advance(until_s)
        assert emulated.next_event_s() > until_s


def test_the_second_prompt_is_faster_when_its_prefix_is_cached() -> None:
    emulated = engine()
    keys = tuple(range(1, 251))
    first, second = (
        request("a", 4000, 2, block_keys=keys),
        request("b", 4000, 2, arrival_s=5.0, block_keys=keys),
    )
    emulated.submit(first, 0.0)
    emulated.submit(second, 5.0)
    run_until_idle(emulated)
    assert (first.reused_tokens, second.reused_tokens) == (0, 3984)
    assert first.first_token_s is not None
    assert second.first_token_s is not None
    assert second.first_token_s - 5.0 < first.first_token_s / 3
    assert emulated.counters().reused_tokens == 3984


@pytest.mark.parametrize(("new_tokens", "is_at_once"), [(AT_ONCE_TOKENS, True), (AT_ONCE_TOKENS - 1, False)])
@pytest.mark.parametrize("policy", ["static:96,36", "chunked:256"])
def test_a_short_prompt_is_cached_when_its_answer_ends(
    policy: str, new_tokens: int, *, is_at_once: bool
) -> None:
    emulated = engine(policy)
    first = request("a", 2000 + new_tokens, 400, block_keys=tuple(range(1, 158)))
    same = request("b", 2000 + new_tokens, 1, block_keys=first.block_keys)
    emulated.submit(request("before", 2000, 1, block_keys=first.block_keys[:125]), 0.0)
    emulated.submit(first, 2.0)
    emulated.advance(3.0)
    assert first.phase is Phase.DECODE
    begun_tokens = emulated.matched_tokens(same)
    run_until_idle(emulated)
    emulated.check_integrity()
    full = (2000 + new_tokens - 1) // 16 * 16
    assert (begun_tokens, emulated.matched_tokens(same)) == (full if is_at_once else 2000, full)


@pytest.mark.parametrize(("at_s", "is_cached"), [(0.001, False), (1.0, True)])
def test_a_short_prompt_is_cached_when_its_answer_is_aborted(at_s: float, *, is_cached: bool) -> None:
    emulated = engine()
    gone = request("gone", 400, 500, block_keys=tuple(range(1, 26)))
    emulated.submit(gone, 0.0)
    assert emulated.abort("gone", at_s)
    run_until_idle(emulated)
    emulated.check_integrity()
    assert emulated.matched_tokens(gone) == (384 if is_cached else 0)


@pytest.mark.parametrize(("prompt_tokens", "repeated"), [(1000, 1088), (1008, 1104), (1, 96)])
def test_the_answer_is_cached_for_a_prompt_that_repeats_it(prompt_tokens: int, repeated: int) -> None:
    emulated = engine()
    keys = tuple(range(1, 251))
    full = prompt_tokens // 16
    first = request("a", prompt_tokens, 100, block_keys=(*keys[:full], -1), answer_keys=keys[full:])
    second = request("b", 4000, 2, arrival_s=5.0, block_keys=keys)
    emulated.submit(first, 0.0)
    emulated.submit(second, 5.0)
    run_until_idle(emulated)
    emulated.check_integrity()
    assert second.reused_tokens == repeated  # the last token of the answer is not computed


def test_the_latest_is_retracted_and_still_finishes_when_kv_runs_out() -> None:
    memory = Memory()
    emulated = engine(kv_capacity_tokens=2100, observer=memory)
    old, young = request("old", 500, 900), request("young", 500, 900, arrival_s=0.05)
    emulated.submit(old, 0.0)
    emulated.submit(young, 0.05)
    run_until_idle(emulated)
    assert (old.retractions, old.phase, young.phase) == (0, Phase.FINISHED, Phase.FINISHED)
    assert young.retractions >= 1
    assert len(emulated.token_times(young)) == 900
    assert emulated.counters().retractions == young.retractions


def test_a_request_fails_with_both_numbers_when_it_can_never_fit() -> None:
    memory = Memory()
    emulated = engine(kv_capacity_tokens=1000, observer=memory)
    big = request("big", 900, 101)
    emulated.submit(big, 0.0)
    assert big.phase is Phase.FAILED
    assert big.failure == "the request needs 1001 KV tokens; the engine holds 1000"
    assert memory.ended == [("big", "failed", 0.0)]
    assert emulated.next_event_s() == math.inf


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at_s", [0.0, 0.05, 0.6])
def test_nothing_is_held_when_a_request_is_aborted(policy: str, at_s: float) -> None:
    emulated = engine(policy)
    gone = request("gone", 8000, 500)
    emulated.submit(gone, 0.0)
    assert emulated.abort("gone", at_s)
    assert not emulated.abort("gone", at_s)
    run_until_idle(emulated)
    emulated.check_integrity()
    assert gone.phase is Phase.ABORTED
    assert emulated.counters().kv_used_tokens == 0


def slo(tbt_s: float, fixed_s: float = 1.0) -> Target:
    return Target(
        slo=Slo(ttft_fixed_s=fixed_s, ttft_per_1k_new_tokens_s=0.0, tbt_s=tbt_s, attainment_ratio=0.99),
        version=7,
    )


def test_the_split_follows_when_a_target_changes_while_serving() -> None:
    memory = Memory()
    emulated = engine(observer=memory)
    emulated.apply_settings(version=1, policy="muxwise", slos={"t": slo(0.2)})
    for i in range(16):
        emulated.submit(request(f"d{i}", 1000, 2000), 0.0)
    emulated.advance(2.0)
    for i in range(40):
        emulated.submit(request(f"p{i}", 16_000, 1, tenant="u"), 2.0)
    emulated.advance(4.0)
    loose = emulated.counters().decode_sms
    emulated.apply_settings(version=2, policy="muxwise", slos={"t": slo(0.013)})
    emulated.advance(5.0)
    assert emulated.counters().decode_sms > loose
    assert emulated.counters().settings_version == 2


def test_the_split_stays_when_a_strict_target_has_a_floor() -> None:
    splits: dict[str, int] = {}
    for name, target in {
        "loose": slo(0.2),
        "strict": slo(0.013),
        "capped": replace(slo(0.013), tbt_floor_s=0.2),
    }.items():
        emulated = engine()
        emulated.apply_settings(version=1, policy="muxwise", slos={"t": target})
        decoding = [request(f"d{i}", 1000, 2000) for i in range(16)]
        for each in decoding:
            emulated.submit(each, 0.0)
        emulated.advance(2.0)
        for i in range(40):
            emulated.submit(request(f"p{i}", 16_000, 1, tenant="u"), 2.0)
        emulated.advance(4.0)
        splits[name] = emulated.counters().decode_sms
        assert {each.tbt_target_s for each in decoding} == {target.slo.tbt_s}, "gaps are judged by its own"
    assert splits["capped"] == splits["loose"] < splits["strict"]


def test_nothing_changes_when_settings_name_an_unknown_policy() -> None:
    emulated = engine()
    emulated.apply_settings(version=1, policy="muxwise", slos={"t": slo(0.2)})
    with pytest.raises(PolicyError):
        emulated.apply_settings(version=2, policy="nonsense", slos={})
    late = request("r", 100, 1)
    emulated.submit(late, 0.0)
    assert (late.tbt_target_s, late.slo_version) == (0.2, 7)
    assert emulated.counters().settings_version == 1


def test_decode_stays_within_its_target_when_long_prompts_arrive() -> None:
    memory = Memory()
    emulated = engine("muxwise", observer=memory)
    chats = [request(f"c{i}", 800, 400) for i in range(24)]
    for chat in chats:
        emulated.submit(chat, 0.0)
    for i in range(8):
        emulated.submit(request(f"long{i}", 30_000, 1), 1.0)
    run_until_idle(emulated)
    gaps = np.concatenate([np.diff(emulated.token_times(chat)) for chat in chats])
    assert gaps.max() <= 0.050
    assert {d.reason for d, _, _ in memory.steps} >= {Reason.BEST_FIT, Reason.DECODE_ALONE}


def test_a_short_prompt_overtakes_when_preemption_is_on() -> None:
    def first_token_s(policy: str) -> float:
        emulated = engine(policy)
        emulated.submit(request("long", 100_000, 2), 0.0)
        short = request("short", 200, 2, arrival_s=0.5)
        emulated.submit(short, 0.5)
        run_until_idle(emulated)
        emulated.check_integrity()
        assert short.first_token_s is not None
        return short.first_token_s

    assert first_token_s("muxwise:preempt") < 1.5 < first_token_s("muxwise")


def test_fused_steps_respect_the_budget_when_prompts_are_chunked() -> None:
    memory = Memory()
    emulated = engine("chunked:256", observer=memory, step_records=True)
    emulated.submit(request("a", 1000, 3), 0.0)
    run_until_idle(emulated)
    assert [d.mode for d, _, _ in memory.steps] == [Mode.FUSED] * 4 + [Mode.DECODE] * 2
    assert emulated.counters().switches == 1, "fused steps and decode alone run on one stream"
    assert [r.prefill_new_tokens for r in emulated.drain_records()] == [256, 256, 256, 232, 0, 0]
    assert emulated.drain_records() == []


def test_the_cache_is_emptied_only_when_nothing_is_in_progress() -> None:
    emulated = engine()
    emulated.submit(request("a", 64, 50, block_keys=(1, 2, 3, 4)), 0.0)
    emulated.advance(0.1)
    assert not emulated.flush_cache()
    run_until_idle(emulated)
    assert emulated.counters().cached_tokens == 64
    assert emulated.flush_cache()
    assert emulated.counters().cached_tokens == 0


@pytest.mark.parametrize("inner", ["muxwise", "chunked:512", "duet"])
def test_a_short_prompt_is_launched_as_a_graph_when_its_length_is_captured(inner: str) -> None:
    def first_token_s(policy: str) -> float:
        emulated = engine(policy)
        short = request("short", 100, 2)
        emulated.submit(short, 0.0)
        run_until_idle(emulated)
        assert short.first_token_s is not None
        return short.first_token_s

    overheads, truth = PROFILE.overheads, PROFILE.truth
    shape = PrefillShape.of([(128, 0)])
    captured_s = truth.prefill_cost(shape, 132).seconds + overheads.graph_launch_s
    assert first_token_s(f"pla/{inner}") == pytest.approx(captured_s, rel=0.02)
    assert first_token_s(inner) >= overheads.layer_launch_s * PROFILE.model.layers


def test_short_prompts_do_not_wait_for_the_long_ones_before_them() -> None:
    def last_short_s(policy: str) -> float:
        emulated = engine(policy)
        for i in range(10):
            emulated.submit(request(f"long{i}", 8000, 1), 0.0)
        shorts = [request(f"short{i}", 100, 1, arrival_s=0.01) for i in range(10)]
        for short in shorts:
            emulated.submit(short, 0.01)
        run_until_idle(emulated)
        return max(short.first_token_s or math.inf for short in shorts)

    assert last_short_s("pla/muxwise") < 0.3 < 1.0 < last_short_s("muxwise")


@pytest.mark.parametrize("policy", ["pla/muxwise", "pla/chunked:512", "pla/auto"])
def test_a_long_prompt_is_not_starved_when_short_ones_flood(policy: str) -> None:
    emulated = engine(policy)
    arrivals = [request(f"s{i}", 60, 4, arrival_s=0.0025 * i) for i in range(800)]
    arrivals.append(request("long", 8000, 4, arrival_s=1.0))
    for r in sorted(arrivals, key=lambda r: r.arrival_s):
        emulated.submit(r, r.arrival_s)
        emulated.check_integrity()
    run_until_idle(emulated)
    assert all(r.phase is Phase.FINISHED for r in arrivals)
    assert arrivals[-1].first_token_s is not None
    assert arrivals[-1].first_token_s < 1.7


def test_a_held_prompt_is_served_when_its_wait_is_over() -> None:
    emulated = engine("pla+nodeadline/muxwise")
    alone = request("alone", 100, 1, arrival_s=0.5)
    emulated.submit(alone, 0.5)
    assert emulated.next_event_s() == 0.5
    emulated.advance(1.4)
    assert emulated.counters().waiting == 1
    run_until_idle(emulated)
    assert alone.first_token_s is not None
    assert DEADLINE_FREE_WAIT_S < alone.first_token_s - 0.5 < DEADLINE_FREE_WAIT_S + 0.01


def test_who_has_no_first_token_is_told_until_it_has_one() -> None:
    emulated = engine()
    emulated.submit(request("short", 100, 50), 0.0)
    emulated.submit(request("long", 16_000, 50), 0.0)
    assert len(list(emulated.awaiting_first_token())) == 2
    emulated.advance(0.1)
    assert len(list(emulated.awaiting_first_token())) == 1
    run_until_idle(emulated)
    assert list(emulated.awaiting_first_token()) == []


def refusing(**options: object) -> tuple[EmulatedEngine, Memory]:
    memory = Memory()
    made = engine("auto", observer=memory)
    target = Target(
        slo=Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=0.0, tbt_s=0.05, attainment_ratio=0.99), version=1
    )
    made.apply_settings(version=1, policy="auto", slos={"t": replace(target, **options)})
    return made, memory


def test_a_request_ends_as_refused_when_it_has_waited_for_as_long_as_it_may() -> None:
    made, memory = refusing(max_wait_s=0.5)
    made.submit(request("long", 100_000, 1), 0.0)
    made.submit(request("waits", 90_000, 1, arrival_s=0.1), 0.1)
    run_until_idle(made)
    ends = {name: (phase, at_s) for name, phase, at_s in memory.ended}
    assert ends["long"][0] == "finished"
    assert ends["waits"][0] == "refused"
    assert 0.6 < ends["waits"][1] < 0.6 + 2 * EXPIRY_LOOK_S
    assert "waits" not in memory.tokens
    made.check_integrity()


@pytest.mark.parametrize(("late_action", "phase"), [("serve", "finished"), ("refuse", "refused")])
def test_a_request_that_is_too_late_is_refused_only_if_its_tenant_wants_that(
    late_action: str, phase: str
) -> None:
    made, memory = refusing(late_action=late_action)
    made.submit(request("long", 100_000, 1), 0.0)
    run_until_idle(made)
    assert [(name, how) for name, how, _ in memory.ended] == [("long", phase)]


def test_a_requests_own_targets_hold_beside_its_tenants():
    own = RequestTargets(ttft_s=0.25, tbt_s=0.0125)
    run = engine("auto")
    first, second = request("a", 100, 50), request("b", 100, 50)
    first.own_targets = own
    for each in (first, second):
        run.submit(each, 0.0)
    run_until_idle(run)
    assert (first.ttft_target_s, first.tbt_target_s) == (0.25, 0.0125)
    assert second.tbt_target_s == DEFAULT_SLO.tbt_s
