"""`auto`: what a step leaves beside a prompt in chunks, and who goes before it (profile of one H200)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import observe, running_prefill, waiting

from pdmuxd.engine.core.policies.fusedsteps import LEAST_PROMPT_TOKENS, chunk_lengths
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import (
    NO_DECODE,
    Decision,
    EngineLimits,
    Mode,
    Observation,
    PrefillMode,
    PrefillShape,
    PrefillView,
    WaitingRequest,
)
from pdmuxd.engine.emulator.profile import load_profile

CONTEXT = load_profile("h200-llama-8b-measured").policy_context
LAST_CHUNK = replace(running_prefill(3000, mode=PrefillMode.CHUNKED), done_tokens=2900)


def decide(spec: str, obs: Observation) -> Decision:
    policy = build_policy(spec, CONTEXT)
    return policy.decide(obs, policy.initial_state())[0]


@pytest.mark.parametrize(
    ("spec", "next_tokens", "reused_tokens", "admit"),
    [
        ("auto", 1500, 0, ("r1", "r2")),
        ("auto", 8000, 100_000, ("r1",)),
        ("auto:nosplit", 8000, 100_000, ("r1", "r2")),
        ("auto:nofuse", 1500, 0, ("r1",)),
    ],
)
def test_a_prompt_begins_in_the_rest_of_a_step_when_it_would_be_fused_anyway(
    spec: str, next_tokens: int, reused_tokens: int, admit: tuple[str, ...]
) -> None:
    """8,000 tokens after 100,000 that are cached are split: their KV is read once, not by each chunk."""
    queue = (waiting(1, 100, deadline_s=20.0), waiting(2, next_tokens, reused_tokens=reused_tokens))
    obs = observe(
        decode_bs=32,
        decode_reused_tokens=40_000,
        tbt_target_s=0.05,
        prefill=LAST_CHUNK,
        queue=queue,
    )
    decision = decide(spec, obs)
    assert (decision.mode, decision.admit) == (Mode.FUSED, admit)


def test_a_prompt_begins_in_the_rest_of_a_step_when_memory_does_not_hold_it_whole() -> None:
    obs = observe(
        decode_bs=32,
        decode_reused_tokens=40_000,
        tbt_target_s=0.05,
        prefill=LAST_CHUNK,
        queue=(waiting(1, 60_000),),
        limits=EngineLimits(max_whole_tokens=50_000),
    )
    assert decide("auto", obs).admit == ("r1",)


@pytest.mark.parametrize(("tbt_target_s", "admit"), [(0.02, ("r1",)), (0.005, ())])
def test_no_prompt_begins_in_the_rest_of_a_step_when_the_step_misses_the_target(
    tbt_target_s: float, admit: tuple[str, ...]
) -> None:
    """A split may meet it, and those who decode would be late until the prompt's end."""
    chunk = replace(running_prefill(3000, mode=PrefillMode.CHUNKED), done_tokens=2990)
    obs = observe(
        decode_bs=32,
        decode_reused_tokens=40_000,
        tbt_target_s=tbt_target_s,
        prefill=chunk,
        queue=(waiting(1, 1500, deadline_s=20.0),),
    )
    assert decide("auto", obs).admit == admit


@pytest.mark.parametrize("next_tokens", [8050, 60_000])
def test_nobody_begins_beside_the_last_chunk_when_nothing_decodes(next_tokens: int) -> None:
    """The next may have all SMs then, by layers or as a graph: nobody waits for a token."""
    obs = observe(prefill=LAST_CHUNK, queue=(waiting(1, 100, deadline_s=20.0), waiting(2, next_tokens)))
    assert obs.decode == NO_DECODE
    assert decide("auto", obs).admit == ("r1",)


LONG = replace(running_prefill(20_000, mode=PrefillMode.CHUNKED, deadline_s=30.0), done_tokens=2048)


def beside_chunks(*queue: WaitingRequest, running: PrefillView = LONG) -> Observation:
    """Beside 32 that decode a step has some 1,100 prompt tokens; the prompt in chunks takes about 0.5 s."""
    return observe(
        decode_bs=32, decode_reused_tokens=40_000, tbt_target_s=0.05, prefill=running, queue=tuple(queue)
    )


def test_a_step_begins_with_those_that_have_less_slack_when_the_chunk_has_time() -> None:
    """In order of slack, whole, and the chunk keeps some tokens; the step is predicted with what it holds."""
    obs = beside_chunks(
        waiting(1, 300, deadline_s=2.0), waiting(2, 5000, deadline_s=3.0), waiting(3, 200, deadline_s=0.3)
    )
    decision, plain = decide("auto", obs), decide("auto", beside_chunks())
    assert (decision.mode, decision.chunk_last, decision.preempt) == (Mode.FUSED, True, False)
    assert decision.admit == ("r3", "r1")
    assert decision.token_budget == plain.token_budget
    lengths = chunk_lengths(LONG, (obs.waiting[2], obs.waiting[0]), plain.token_budget - 32, chunk_last=True)
    assert lengths == [(200, 0), (300, 0), (plain.token_budget - 532, 2048)]
    step_s = CONTEXT.latency.fused_s(PrefillShape.of(lengths), obs.decode, CONTEXT.rules.total_sms)
    assert decision.numbers.predicted_fused_s == step_s < (plain.numbers.predicted_fused_s or 0.0)


@pytest.mark.parametrize(
    ("request_", "running"),
    [
        (waiting(1, 300, deadline_s=90.0), LONG),  # it has more slack
        (waiting(1, 300, deadline_s=0.001), LONG),  # it is too late
        (waiting(1, 4000, deadline_s=1.0), LONG),  # it does not fit whole: there would be two in chunks
        (waiting(1, 300, deadline_s=0.2), replace(LONG, earliest_deadline_s=0.3)),  # the chunk is late
        (waiting(1, 300, deadline_s=0.2), replace(LONG, done_tokens=18_500)),  # it ends with the next step
    ],
)
def test_the_chunk_has_its_tokens_first_when_it_is_the_more_urgent_or_nobody_fits(
    request_: WaitingRequest, running: PrefillView
) -> None:
    assert not decide("auto", beside_chunks(request_, running=running)).chunk_last


@pytest.mark.parametrize("spec", ["auto:nopreempt", "auto:fcfs"])
def test_the_chunk_has_its_tokens_first_when_that_is_switched_off(spec: str) -> None:
    assert not decide(spec, beside_chunks(waiting(1, 300, deadline_s=0.3))).chunk_last


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 3000), max_size=12),
    deadlines=st.lists(st.floats(0.01, 60.0), min_size=12, max_size=12),
    left=st.integers(100, 100_000),
    due_s=st.floats(0.05, 100.0),
)
def test_a_chunk_with_time_is_in_time_after_whoever_goes_first(
    lengths: list[int], deadlines: list[float], left: int, due_s: float
) -> None:
    """By the prediction of its own steps: those that go first cost no more than its spare time holds."""
    running = running_prefill(left, mode=PrefillMode.CHUNKED, deadline_s=due_s)
    queue = [waiting(n, new, deadline_s=deadlines[n]) for n, new in enumerate(lengths)]
    decision = decide("auto", beside_chunks(*queue, running=running))
    if not decision.chunk_last:
        return
    plain = decide("auto:nopreempt", beside_chunks(running=running))
    tokens, step_s = plain.token_budget - 32, plain.numbers.predicted_fused_s or 0.0
    first = sum(request.new_tokens for request in queue if request.request_id in decision.admit)
    assert 0 < first <= tokens - LEAST_PROMPT_TOKENS
    assert step_s * (-(-left // tokens) + first / tokens) <= due_s + 0.2 * step_s
