"""`auto`: what a step leaves beside the last chunk of a prompt (profile of one H200)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import observe, running_prefill, waiting

from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import NO_DECODE, Decision, EngineLimits, Mode, Observation, PrefillMode
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
