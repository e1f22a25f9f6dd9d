"""A fleet: every request ends once (invariant 5), pools stay apart, instances are conserved."""

from __future__ import annotations

import math

import pytest
from engines import PROFILE, Memory, request
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.pressure import Pool
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.fleet import EmulatedFleet, parse_fleet
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.loop.requests import Target

SLO = Target(
    slo=Slo(ttft_fixed_s=0.4, ttft_per_1k_new_tokens_s=0.0, tbt_s=0.05, attainment_ratio=0.99), version=1
)


def fleet(policy: str, observer: Memory | None = None) -> EmulatedFleet:
    made = EmulatedFleet(profile=PROFILE, policy=policy, observer=observer)
    made.apply_settings(version=1, policy=made.spec.text, slos={"t": SLO})
    return made


def run(made: EmulatedFleet, requests: list[EmulatedRequest]) -> None:
    drive(made, requests, sample_every_s=5.0, on_sample=lambda _: None)


lengths = st.tuples(
    st.one_of(st.integers(1, 300), st.integers(1, 9000)), st.integers(1, 40), st.floats(0.0, 8.0)
)


@pytest.mark.parametrize("policy", ["pla-spatial:3", "pla-spatial:2/chunked:512", "round-robin:3/muxwise"])
@settings(max_examples=25, deadline=None)
@given(
    workload=st.lists(lengths, min_size=1, max_size=25),
    aborts=st.lists(st.tuples(st.integers(0, 24), st.floats(0.0, 9.0)), max_size=3),
)
def test_every_request_ends_once_when_a_fleet_serves(
    policy: str, workload: list[tuple[int, int, float]], aborts: list[tuple[int, float]]
) -> None:
    memory = Memory()
    made = fleet(policy, memory)
    requests = [request(f"r{i}", n, out, arrival_s=at_s) for i, (n, out, at_s) in enumerate(workload)]
    events: list[tuple[float, int, EmulatedRequest | str]] = [(r.arrival_s, 0, r) for r in requests]
    events += [(at_s, 1, f"r{i}") for i, at_s in aborts]
    for at_s, _, what in sorted(events, key=lambda event: event[:2]):
        if isinstance(what, EmulatedRequest):
            made.submit(what, at_s)
        else:
            made.abort(what, at_s)
    while math.isfinite(event_s := made.next_event_s()):
        made.advance(event_s)
    made.check_integrity()
    assert sorted(name for name, _, _ in memory.ended) == sorted(r.request_id for r in requests)
    for r in requests:
        assert len(made.token_times(r)) == r.produced_tokens
    assert set(made.pools()) == {Pool.SHORT, Pool.LONG}
    assert len(made.pools()) == parse_fleet(policy).instances


def test_short_and_long_prompts_are_on_instances_of_their_own() -> None:
    made = fleet("pla-spatial:4/muxwise")
    run(made, [request(f"r{i}", 9000 if i % 3 else 100, 2, arrival_s=0.3 * i) for i in range(30)])
    prompts = [engine.counters().prompt_tokens for engine in made.engines]
    assert made.moves == []
    assert sum(prompts[:2]) == 10 * 100
    assert sum(prompts[2:]) == 20 * 9000


def test_a_turn_goes_where_its_conversation_is_cached_and_is_short_there() -> None:
    made = fleet("pla-spatial:4/muxwise")
    turns = [
        request(f"r{i}", 208 + 160 * i, 9, arrival_s=2.0 * i, block_keys=tuple(range(13 + 10 * i)))
        for i in range(4)
    ]
    run(made, turns)
    served = [engine.counters().prompt_tokens for engine in made.engines]
    assert sorted(served)[:3] == [0, 0, 0], "one instance has served all of it"
    assert made.pools()[served.index(max(served))] is Pool.SHORT
    assert turns[-1].reused_tokens == 528, "688 tokens, of which 160 are new"


def test_an_instance_moves_to_the_long_pool_when_long_prompts_pile_up() -> None:
    made = fleet("pla-spatial:4/muxwise")
    run(made, [request(f"r{i}", 9000, 2, arrival_s=0.05 * i) for i in range(200)])
    assert [move.to for move in made.moves] == [Pool.LONG]
    assert made.pools().count(Pool.LONG) == 3


def test_requests_take_turns_when_the_rule_is_round_robin() -> None:
    made = fleet("round-robin:3/muxwise")
    run(made, [request(f"r{i}", 100 * (i + 1), 2, arrival_s=0.1 * i) for i in range(6)])
    assert [engine.counters().prompt_tokens for engine in made.engines] == [500, 700, 900]


def test_the_least_loaded_instance_gets_the_request() -> None:
    made = fleet("pla-spatial:4/muxwise")
    run(made, [request("a", 20_000, 1), request("b", 1000, 1), request("c", 1000, 1)])
    assert [engine.counters().prompt_tokens for engine in made.engines] == [0, 0, 20_000, 2000]


def test_a_request_fails_once_when_no_instance_can_hold_it() -> None:
    memory = Memory()
    made = fleet("pla-spatial:2", memory)
    big = request("big", PROFILE.kv_capacity_tokens, 1)
    run(made, [big])
    assert big.phase is Phase.FAILED
    assert memory.ended == [("big", "failed", 0.0)]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("muxwise", "unknown fleet policy 'muxwise'; known are pla-spatial:N.*round-robin:N"),
        ("pla-spatial", "'' instances; give 2 to 64"),
        ("pla-spatial:1", "'1' instances; give 2 to 64"),
        ("pla-spatial:4/nonsense", "unknown policy 'nonsense'"),
    ],
)
def test_what_is_allowed_is_told_when_a_fleet_policy_is_wrong(spec: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        parse_fleet(spec)


def test_the_counters_are_those_of_all_when_a_fleet_is_asked() -> None:
    made = EmulatedFleet(profile=PROFILE, policy="round-robin:2/muxwise")
    for i in range(4):
        made.submit(request(f"r{i}", 100, 5), 0.0)
    run(made, [])
    counters = made.counters()
    assert (counters.output_tokens, counters.prompt_tokens, counters.running) == (20, 400, 0)
    assert counters.kv_capacity_tokens == 2 * PROFILE.kv_capacity_tokens
    assert made.total_sms == 264
    assert counters.policy == "round-robin:2/muxwise"


def test_nothing_changes_when_a_fleet_is_told_another_policy() -> None:
    made = EmulatedFleet(profile=PROFILE, policy="round-robin:2/muxwise")
    with pytest.raises(PolicyError, match="a fleet keeps its policy round-robin:2/muxwise"):
        made.apply_settings(version=2, policy="auto", slos={})
