"""`pla`: which class the inner policy sees, when shorts wait, turns, graphs (LinearLatency: 1 ms a token)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, running_prefill, sampled, waiting

from pdmuxd.engine.core.adaptive_batching import AdaptiveBatchingState
from pdmuxd.engine.core.crossover import MIN_SAMPLES
from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.policies.pla import MAX_SHORT_BATCHES, PlaState
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import (
    Decision,
    Mode,
    Observation,
    PrefillGraph,
    PrefillMode,
    PrefillSample,
    Reason,
)

SHORT, LONG = 100, 4000


def after(obs: Observation, spec: str = "pla/muxwise", **mine: object) -> tuple[Decision, PlaState[object]]:
    policy = build_policy(spec, linear_context())
    state = policy.initial_state()
    return policy.decide(obs, replace(state, **mine))


def decide(obs: Observation, spec: str = "pla/muxwise", **mine: object) -> Decision:
    return after(obs, spec, **mine)[0]


def test_muxwise_is_inside_when_nothing_else_is_named() -> None:
    assert build_policy("pla", linear_context()).table == build_policy("muxwise", linear_context()).table


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("pla/nonsense", "unknown policy 'nonsense'"),
        ("pla/", "unknown policy ''"),
        ("pla+fast/muxwise", "options are nodeadline, nograph"),
        ("pla/pla/muxwise", "the inner policy is one of the others"),
        ("pla/chunked:5", "give a token budget"),
        ("pla-spatial:4", "assigns the instances of a fleet; .*use EmulatedFleet"),
    ],
)
def test_what_is_allowed_is_told_when_a_specification_is_wrong(spec: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        build_policy(spec, linear_context())


def test_shorts_go_first_and_together_when_both_classes_wait() -> None:
    queue = (waiting(1, LONG), waiting(2, SHORT), waiting(3, 200), waiting(4, LONG))
    decision, state = after(observe(queue=queue))
    assert decision.admit == ("r2", "r3")
    assert state.short_batches == 1


def test_one_long_goes_when_its_turn_has_come() -> None:
    queue = (waiting(1, SHORT), waiting(2, LONG), waiting(3, LONG))
    decision, state = after(observe(queue=queue), short_batches=1)
    assert decision.admit == ("r2",)
    assert state.short_batches == 0


def test_shorts_go_again_when_they_would_miss_their_deadline_behind_the_long() -> None:
    queue = (waiting(1, LONG), waiting(2, SHORT, deadline_s=2.0))
    assert decide(observe(queue=queue), short_batches=1).admit == ("r2",)
    assert decide(observe(queue=queue), short_batches=MAX_SHORT_BATCHES).admit == ("r1",)
    assert decide(observe(queue=queue), "pla+nodeadline/muxwise", short_batches=1).admit == ("r1",)


def test_the_long_goes_when_the_shorts_have_missed_their_deadline_anyway() -> None:
    queue = (waiting(1, LONG), waiting(2, SHORT, deadline_s=0.05))
    assert decide(observe(queue=queue), short_batches=1).admit == ("r1",)


def test_the_inner_policy_chooses_among_the_longs() -> None:
    queue = (waiting(1, LONG, deadline_s=50.0), waiting(2, LONG, deadline_s=20.0))
    assert decide(observe(queue=queue), "pla/auto").admit == ("r2",)


def test_shorts_pass_a_long_whose_kv_does_not_fit_but_not_for_ever() -> None:
    obs = observe(decode_bs=2, kv_free_tokens=1000, queue=(waiting(1, LONG), waiting(2, SHORT)))
    assert decide(obs, short_batches=1).admit == ("r2",)
    assert decide(obs, short_batches=MAX_SHORT_BATCHES).admit == ()


BUSY = AdaptiveBatchingState(depth=8, rate_per_s=1000.0, seen_s=0.001)


def test_shorts_are_held_until_their_window_when_the_device_is_idle() -> None:
    decision = decide(observe(queue=(waiting(1, 20),), now_s=0.002), adaptive_batching=BUSY)
    assert (decision.mode, decision.reason) == (Mode.IDLE, Reason.HOLD_FOR_BATCH)
    # W_GR: 7 more at (nearly) 1000/s.
    assert decision.wake_at_s == pytest.approx(0.009, abs=1e-4)


def test_decode_goes_on_when_shorts_are_held() -> None:
    decision = decide(observe(decode_bs=4, queue=(waiting(1, 20),), now_s=0.002), adaptive_batching=BUSY)
    assert (decision.reason, decision.decode_steps, decision.admit) == (Reason.DECODE_ALONE, 1, ())


def test_nobody_is_held_when_a_long_waits() -> None:
    obs = observe(queue=(waiting(1, 20), waiting(2, LONG)), now_s=0.002)
    assert decide(obs, adaptive_batching=BUSY).admit == ("r1",)


def test_shorts_run_as_a_graph_at_once_when_one_holds_them() -> None:
    decision = decide(observe(decode_bs=4, queue=(waiting(1, 60), waiting(2, 33), waiting(3, 50))))
    assert decision.prefill_graph == PrefillGraph(length=64, batch=4)
    assert decision.prefill_layers == 32
    assert decide(observe(queue=(waiting(1, 100),)), "pla+nograph/muxwise").prefill_graph is None


def test_an_engine_without_captured_prefills_runs_shorts_as_with_nograph() -> None:
    context = replace(linear_context(), captures_prefill=False)
    obs = observe(decode_bs=4, queue=(waiting(1, 60), waiting(2, 33), waiting(3, 200), waiting(4, 50)))
    policy = build_policy("pla/muxwise", context)
    decision, _ = policy.decide(obs, policy.initial_state())
    assert decision == decide(obs, "pla+nograph/muxwise")
    assert decision.prefill_graph is None
    assert decision != decide(obs)


def test_no_graph_runs_when_the_budget_cuts_the_batch() -> None:
    queue = (waiting(1, 100), waiting(2, 100))
    whole = decide(observe(decode_bs=4, queue=queue), "pla/chunked:204")
    cut = decide(observe(decode_bs=4, queue=queue), "pla/chunked:203")
    assert whole.prefill_graph == PrefillGraph(length=128, batch=2)
    assert cut.prefill_graph is None


def test_shorts_join_a_chunked_batch_only_when_it_is_short_and_no_long_waits() -> None:
    def admitted(running_tokens: int, *queue: int) -> tuple[str, ...]:
        prefill = running_prefill(running_tokens, mode=PrefillMode.CHUNKED)
        waits = tuple(waiting(i + 1, n) for i, n in enumerate(queue))
        return decide(observe(decode_bs=4, prefill=prefill, queue=waits), "pla/chunked:512").admit

    assert admitted(SHORT, SHORT, SHORT) == ("r1", "r2")
    assert admitted(SHORT, SHORT, LONG) == ()
    assert admitted(LONG, SHORT) == ()
    assert admitted(SHORT, LONG) == ()


def test_a_short_may_preempt_a_long_when_the_inner_policy_does_so() -> None:
    running = running_prefill(LONG, launched=8, done=8)
    decision = decide(observe(prefill=running, queue=(waiting(1, SHORT),)), "pla/muxwise:preempt")
    assert decision.preempt
    assert decision.prefill_graph == PrefillGraph(length=128, batch=1)


def test_longs_make_room_in_the_window_when_it_is_full() -> None:
    obs = observe(queue=(waiting(1, LONG), waiting(2, SHORT)))
    assert decide(obs).deprioritize == ()
    assert decide(replace(obs, waiting_count=100)).deprioritize == ("r1",)


def test_the_crossover_is_fitted_when_samples_come() -> None:
    policy = build_policy("pla/muxwise", linear_context())
    state = policy.initial_state()
    for i in range(1, MIN_SAMPLES + 1):
        new, reused = 100 * i, 37 * i * i % 1000
        sample = PrefillSample(
            new_tokens=new,
            reused_tokens=reused,
            compute_s=1e-9 * new * (new + 2 * reused) + 1e-6 * new,
            memory_s=2e-6 * new + 1e-6 * reused,
        )
        state = policy.learn_prefill(sampled(sample), state)
    assert state.fit is not None
    # Without history: (gamma_w - beta) / alpha = 1000 tokens.
    queue = (waiting(1, 1001), waiting(2, 999))
    assert policy.decide(observe(queue=queue), state)[0].admit == ("r2",)
