"""Loads of documented shape."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.daemon.replay.generate import BLOCK_TOKENS, KINDS, MOST_TOKENS, generate


@settings(max_examples=20)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    rate=st.floats(0.2, 20.0),
    duration_s=st.floats(5.0, 60.0),
    seed=st.integers(0, 9),
)
def test_requests_are_in_order_and_within_bounds_whatever_is_asked_for(kind, rate, duration_s, seed):
    found = generate(kind, rate_per_s=rate, duration_s=duration_s, seed=seed)
    assert found == generate(kind, rate_per_s=rate, duration_s=duration_s, seed=seed)
    assert all(one.arrival_s <= other.arrival_s for one, other in pairwise(found))
    for one in found:
        assert 0.0 <= one.arrival_s < duration_s
        assert 8 <= one.input_tokens <= MOST_TOKENS
        assert one.output_tokens >= 8
        assert len(one.prefix_ids) * BLOCK_TOKENS <= one.input_tokens
        assert one.tenant in {part.tenant for part in KINDS[kind].parts}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_as_many_requests_arrive_as_were_asked_for(kind):
    calls = sum(len(generate(kind, rate_per_s=5.0, duration_s=400.0, seed=seed)) for seed in range(4))
    assert calls == pytest.approx(4 * 5.0 * 400.0, rel=0.15)


def test_an_agents_call_repeats_what_came_before_and_adds_to_it():
    found = generate("agents", rate_per_s=1.0, duration_s=200.0, seed=3)
    sessions = {}
    for one in found:
        sessions.setdefault(one.prefix_ids[0], []).append(one)
    longest = max(sessions.values(), key=len)
    assert len(longest) > 5
    for earlier, later in pairwise(longest):
        assert later.prefix_ids[: len(earlier.prefix_ids)] == earlier.prefix_ids
        assert later.input_tokens > earlier.input_tokens
        both = (*earlier.prefix_ids, *earlier.answer_ids)
        assert later.prefix_ids[: len(both)] == both, "the answer is repeated, too"
        assert len(both) == (earlier.input_tokens + earlier.output_tokens) // BLOCK_TOKENS
    firsts = [ids for session in sessions.values() for ids in session[-1].prefix_ids]
    assert len(set(firsts)) == len(firsts), "sessions share nothing"


def test_another_seed_makes_other_requests():
    assert generate("chat", rate_per_s=5.0, duration_s=9.0, seed=1) != generate(
        "chat", rate_per_s=5.0, duration_s=9.0, seed=2
    )
