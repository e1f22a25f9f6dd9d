"""Prefills that overtake each other, several deep: who goes on when, and what is left when some are aborted.

Invariant 3: the one set aside last goes on first. Invariant 4: all of them are in time.
Invariants 5 and 8: each ends once, and the KV of all is given back.
"""

from __future__ import annotations

import pytest
from engines import Memory, engine, request, run_until_idle
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase

NESTED = ((90_000, 0.0, 60.0), (40_000, 0.2, 3.5), (12_000, 0.4, 0.9), (2_000, 0.6, 0.25))
"""(tokens, arrival, TTFT target): none could wait for what is left of the one before it."""
DEEPEST_S = 0.8
"""When the last one runs, and the three before it are set aside."""


def submitted(emulated: EmulatedEngine) -> list[EmulatedRequest]:
    made = []
    for number, (tokens, arrival_s, ttft_s) in enumerate(NESTED):
        made.append(request(f"r{number}", tokens, 4, arrival_s=arrival_s))
        made[-1].own_targets = RequestTargets(ttft_s=ttft_s)
        emulated.submit(made[-1], arrival_s)
    return made


def ended(memory: Memory) -> list[str]:
    return [name for name, _, _ in memory.ended]


def test_who_overtakes_is_overtaken_when_the_next_could_not_wait_and_all_are_in_time() -> None:
    memory = Memory()
    emulated = engine("auto", observer=memory)
    requests = submitted(emulated)
    emulated.advance(DEEPEST_S)
    assert (emulated.counters().prefilling, emulated.counters().preemptions) == (4, 3)
    run_until_idle(emulated)
    assert ended(memory) == ["r3", "r2", "r1", "r0"]
    for each in requests:
        assert each.first_token_s is not None
        assert each.first_token_s <= each.arrival_s + each.ttft_target_s
    assert emulated.counters().preemptions == 3


@pytest.mark.parametrize(
    ("policy", "limits", "prefilling", "first"),
    [
        ("auto:nonest", EngineLimits(), 2, "r1"),
        ("auto", EngineLimits(max_set_aside=2), 3, "r2"),
        ("auto:nopreempt", EngineLimits(), 1, "r0"),
    ],
)
def test_no_more_are_set_aside_than_may_be(
    policy: str, limits: EngineLimits, prefilling: int, first: str
) -> None:
    memory = Memory()
    emulated = engine(policy, observer=memory, limits=limits)
    submitted(emulated)
    emulated.advance(DEEPEST_S)
    assert emulated.counters().prefilling == prefilling
    run_until_idle(emulated)
    assert ended(memory)[0] == first
    assert sorted(ended(memory)) == ["r0", "r1", "r2", "r3"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    aborts=st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 1.5)), max_size=4),
    kv_capacity_tokens=st.sampled_from((145_000, 300_000)),
    switch_s=st.one_of(st.none(), st.floats(0.3, 1.0)),
)
def test_everything_is_given_back_when_any_depth_is_aborted(
    aborts: list[tuple[int, float]], kv_capacity_tokens: int, switch_s: float | None
) -> None:
    memory = Memory()
    emulated = engine("auto", observer=memory, kv_capacity_tokens=kv_capacity_tokens)
    requests = submitted(emulated)
    events = [(at_s, number) for number, at_s in aborts if at_s >= NESTED[-1][1]]
    if switch_s is not None and switch_s >= NESTED[-1][1]:
        events.append((switch_s, -1))
    for at_s, number in sorted(events):
        emulated.advance(at_s)
        if number >= 0:
            emulated.abort(f"r{number}", at_s)
        else:
            emulated.apply_settings(version=2, policy="muxwise", slos={})
        emulated.check_integrity()
    run_until_idle(emulated)
    emulated.check_integrity()
    assert sorted(ended(memory)) == [each.request_id for each in requests]
    gone = {f"r{number}" for number, _ in aborts}
    for each in requests:
        assert each.phase is Phase.FINISHED or each.request_id in gone
    counters = emulated.counters()
    assert counters.prefilling == counters.waiting == counters.kv_used_tokens == 0
