"""How long answers are, by tenant, counted where steps are launched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import waiting

from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.answers import ANSWER_MEMORY_S, AnswerLengths


def _begin(lengths: AnswerLengths, tenant: str, count: int, now_s: float) -> None:
    lengths.begun((replace(waiting(number, 10), tenant=tenant) for number in range(count)), now_s)


def test_the_length_of_answers_is_what_was_decoded_over_what_was_begun() -> None:
    """20 requests begin each second and 1,000 tokens are decoded: 50 tokens each; of another load as much is
    seen of the old one as the memory says."""
    lengths = AnswerLengths()
    for second in range(200):
        _begin(lengths, "a", 20, float(second))
        lengths.decoded(1000, {"a": 7}, float(second))
    assert dict(lengths.usual(["a"]))["a"] == pytest.approx(50)
    for second in range(200, 200 + int(ANSWER_MEMORY_S)):
        _begin(lengths, "a", 20, float(second))
        lengths.decoded(3000, {"a": 7}, float(second))
    assert dict(lengths.usual(["a"]))["a"] == pytest.approx(100, rel=0.03)


def test_each_tenant_has_a_length_of_its_own_when_they_share_the_batch() -> None:
    lengths = AnswerLengths()
    for second in range(100):
        _begin(lengths, "brief", 10, float(second))
        _begin(lengths, "long", 1, float(second))
        lengths.decoded(600, {"brief": 10, "long": 20}, float(second))
    assert dict(lengths.usual(["brief", "long", "unseen"])) == pytest.approx(
        {"brief": 20.0, "long": 400.0, "unseen": 600 / 11}
    )


def test_nothing_is_claimed_when_nothing_was_seen() -> None:
    assert AnswerLengths().usual(["a"]) == (("a", 0.0),)


def test_counts_stay_finite_and_tenants_are_forgotten_when_weeks_pass() -> None:
    lengths = AnswerLengths()
    _begin(lengths, "gone", 3, 0.0)
    lengths.decoded(30, {"gone": 3}, 0.0)
    for second in range(0, 2_000_000, 1000):
        _begin(lengths, "a", 2, float(second))
        lengths.decoded(80, {"a": 1}, float(second))
    assert dict(lengths.usual(["a", "gone"])) == pytest.approx({"a": 40.0, "gone": 40.0})


def test_the_loop_counts_what_it_begins_and_decodes() -> None:
    """1,200 requests of 30 tokens at once on 256 slots: those that wait see about 30."""
    engine = EmulatedEngine(profile=load_profile(DEFAULT_PROFILE), policy="auto")
    seen: list[float] = []
    decide = engine._loop.policy_runtime.shadowed

    def note(obs, decision):
        seen.extend(tokens for _, tokens in obs.answer_tokens)
        decide(obs, decision)

    engine._loop.policy_runtime.shadowed = note
    for number in range(1200):
        engine.submit(
            EmulatedRequest(
                request_id=str(number), tenant="a", arrival_s=0.0, input_tokens=60, output_tokens=30
            ),
            0.0,
        )
    engine.advance(60.0)
    assert seen
    assert 15.0 < max(seen) < 45.0
