"""Requests that wait and are not shown to the policy have a reason, and are counted by it."""

from __future__ import annotations

import pytest
from engines import request

from pdmuxd.engine.core.observing import Hidden, hidden
from pdmuxd.engine.core.types import EngineLimits, Observation, WaitingRequest
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.state import DeniedOvertaking

LIMITS = EngineLimits(max_prefill_tokens=4096, max_whole_tokens=6000)


def _waiting(name: str, new_tokens: int) -> WaitingRequest:
    return WaitingRequest(
        request_id=name,
        tenant="t",
        arrival_s=0.0,
        deadline_s=1.0,
        new_tokens=new_tokens,
        reused_tokens=0,
        tbt_target_s=0.05,
    )


def test_each_request_has_one_reason_when_several_hold() -> None:
    queue = (_waiting("short", 10), _waiting("long", 9000), _waiting("denied", 9000))
    asked = {"queue_length": 5, "limits": LIMITS}
    assert hidden(queue, **asked, denied={"denied"}, is_layerwise=True) == Hidden(
        kv_denied=1, long_prompt=1, beyond_window=2
    )
    assert hidden(queue, **asked) == Hidden(beyond_window=2)
    assert hidden(queue, **asked, denied={"denied"}, is_changing=True) == Hidden(policy_change=5)


def test_denied_requests_are_told_without_changing_when_they_are_shown_again() -> None:
    denied = DeniedOvertaking()
    denied.note(frozenset({"a"}), 100)
    assert denied.held(90, is_chunked=True) == {"a"}
    assert not denied.held(101, is_chunked=True)
    assert not denied.held(90, is_chunked=False)
    # Asked with 90 it would now be shown at 100.
    assert denied.hidden(100, is_chunked=True) == {"a"}


def test_the_count_is_what_the_policy_was_not_shown_when_long_prompts_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, Hidden]] = []
    decide = PolicyRuntime.decide
    engine = EmulatedEngine(profile=load_profile("h200-llama-8b"), policy="muxwise", limits=LIMITS)

    def record(self: PolicyRuntime, obs: Observation) -> object:
        # Without a prefill the policy may be asked about the moment when the one under way has ended.
        if obs.prefill is not None:
            seen.append((obs.waiting_count - len(obs.waiting), engine.hidden()))
        return decide(self, obs)

    monkeypatch.setattr(PolicyRuntime, "decide", record)
    for number in range(4):
        engine.submit(request(f"r{number}", 256, 400, arrival_s=0.0), 0.0)
    engine.advance(1.0)
    engine.submit(request("whole", 5000, 10, arrival_s=1.0), 1.0)
    engine.advance(1.03)
    for number in range(6):
        engine.submit(request(f"p{number}", 9000 if number % 2 else 500, 10, arrival_s=1.03), 1.03)
    engine.advance(3.0)
    assert {told.long_prompt for _, told in seen} >= {0, 3}
    assert [each for each in seen if each[0] != each[1].long_prompt] == []
    engine.advance(60.0)
    assert engine.hidden() == Hidden()
