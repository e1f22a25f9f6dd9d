"""What-if asks with the observation that the loop would make: same limits, same answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engines import request

from pdmuxd.controlplane.outlook.assumed_load import Assumed
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.types import DecodeShape, EngineLimits, Observation
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.server.telemetry import hello
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime

LIMITS = EngineLimits(max_prefill_tokens=4096, max_whole_tokens=6000, max_decode_bs=24, max_set_aside=3)
POLICIES = ("auto", "muxwise", "chunked:512")


def captured(
    monkeypatch: pytest.MonkeyPatch, policy: str, *, batch: int, new_tokens: int
) -> tuple[Observation, AnyPolicy, EmulatedEngine]:
    """What the policy was shown when a prompt came beside a batch that decodes."""
    seen: list[tuple[Observation, AnyPolicy]] = []
    decide = PolicyRuntime.decide

    def record(self: PolicyRuntime, obs: Observation) -> object:
        seen.append((obs, self.policy))
        return decide(self, obs)

    monkeypatch.setattr(PolicyRuntime, "decide", record)
    engine = EmulatedEngine(profile=load_profile("h200-llama-8b"), policy=policy, limits=LIMITS)
    for number in range(batch):
        engine.submit(request(f"r{number}", 256, 4000, arrival_s=0.0), 0.0)
    engine.advance(1.0)
    engine.submit(request("prompt", new_tokens, 10, arrival_s=1.0), 1.0)
    engine.advance(1.5)
    found = next(each for each in seen if [one.request_id for one in each[0].waiting] == ["prompt"])
    return *found, engine


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("batch", "new_tokens"), [(1, 300), (8, 3000), (8, 9000), (23, 9000), (24, 700)])
def test_the_answer_is_the_loops_own_when_a_state_of_it_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, policy: str, batch: int, new_tokens: int
) -> None:
    obs, asked, engine = captured(monkeypatch, policy, batch=batch, new_tokens=new_tokens)
    told, tbt_s = hello(engine, model="m", version="0"), obs.tbt_target_s
    assert obs.decode.bs == batch
    assert tbt_s is not None
    assert told.limits == obs.limits == LIMITS
    load = Assumed(
        decode_bs=batch,
        decode_context_tokens=obs.decode.max_context_tokens,
        prefill_new_tokens=new_tokens,
        prefill_reused_tokens=0,
        source="request",
    )
    made = load.observed(tbt_s, asked, told)
    # What no question names: which split is in force, when who came, whose it is, how much memory is free.
    (prompt,) = obs.waiting
    same = replace(
        obs,
        now_s=made.now_s,
        last_token_s=made.last_token_s,
        partition_id=made.partition_id,
        kv_free_tokens=made.kv_free_tokens,
        settings_version=made.settings_version,
        decode=DecodeShape(
            bs=batch,
            reused_tokens=batch * obs.decode.max_context_tokens,
            max_context_tokens=obs.decode.max_context_tokens,
        ),
        slots_held=(),
        answer_tokens=(),
        waiting=tuple(made.waiting),
    )
    assert same == made
    assert [(one.new_tokens, one.reused_tokens) for one in made.waiting] == [(new_tokens, 0)]
    assert (prompt.new_tokens, prompt.reused_tokens, prompt.tbt_target_s) == (new_tokens, 0, tbt_s)
    state = asked.initial_state()
    assert asked.decide(same, state)[0] == asked.decide(made, state)[0]
    if batch == LIMITS.max_decode_bs:
        assert asked.decide(made, state)[0].admit == (), "there is no slot for it"
    elif new_tokens > 6000 and policy != "chunked:512":
        assert asked.plans(made, state)
