"""`auto`: the choice between fused and split, the budget, the order, preemption (LinearLatency)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engines import PROFILE
from observations import linear_context, observe, running_prefill, took, waiting, with_margin

from pdmuxd.engine.core.estimates.latency_margin import LatencyMargin
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.core.policies.autostate import AutoState
from pdmuxd.engine.core.policies.choice import FUSED_LIMIT_S
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY, build_policy
from pdmuxd.engine.core.types import (
    NO_DECODE,
    Decision,
    EngineLimits,
    Mode,
    Observation,
    PrefillFeedback,
    PrefillMode,
    PrefillShape,
    Reason,
    WaitingRequest,
)

AS_PREDICTED = LatencyMargin(deviation=0.0)


def decide(obs: Observation, spec: str = "auto") -> Decision:
    policy = build_policy(spec, linear_context())
    return policy.decide(obs, with_margin(policy.initial_state(), AS_PREDICTED))[0]


def on_h200(obs: Observation) -> Decision:
    policy = build_policy("auto", PROFILE.policy_context)
    return policy.decide(obs, policy.initial_state())[0]


def test_it_is_the_default() -> None:
    assert DEFAULT_POLICY == "auto"


def test_a_short_prompt_is_fused_when_it_fits_beside_decode() -> None:
    decision = on_h200(observe(decode_bs=32, decode_reused_tokens=40_000, queue=(waiting(1, 600),)))
    assert (decision.mode, decision.reason) == (Mode.FUSED, Reason.FUSED_FITS)
    assert decision.rejected[0].label == "split"


def test_images_that_are_prefilled_whole_are_split_and_join_no_prompt_in_chunks() -> None:
    images = replace(waiting(1, 600), is_whole=True)
    decision = on_h200(observe(decode_bs=32, decode_reused_tokens=40_000, queue=(images,)))
    assert (decision.mode, decision.admit, decision.rejected[:1]) == (Mode.SPLIT, ("r1",), ())
    chunks = running_prefill(9000, mode=PrefillMode.CHUNKED)
    decision = on_h200(observe(decode_bs=32, decode_reused_tokens=40_000, queue=(images,), prefill=chunks))
    assert (decision.mode, decision.admit) == (Mode.FUSED, ())


def test_a_long_prompt_is_split_when_its_chunks_could_not_be_preempted_for_long() -> None:
    decision = on_h200(observe(decode_bs=32, decode_reused_tokens=40_000, queue=(waiting(1, 60_000),)))
    assert (decision.mode, decision.reason) == (Mode.SPLIT, Reason.BEST_FIT)
    assert decision.rejected[-1].label == "fused"
    assert decision.rejected[-1].predicted_s > FUSED_LIMIT_S


@pytest.mark.parametrize("decode_bs", [0, 32])
def test_a_prompt_is_fused_when_memory_does_not_hold_it_whole(decode_bs: int) -> None:
    limits = EngineLimits(max_whole_tokens=50_000)
    queue = (waiting(1, 60_000),)
    decision = on_h200(observe(decode_bs=decode_bs, queue=queue, limits=limits))
    assert (decision.mode, decision.admit) == (Mode.FUSED, ("r1",))
    assert 0 < decision.token_budget - decode_bs <= 8192
    assert (decision.numbers.predicted_fused_s or 1.0) < (0.05 if decode_bs else 1.0)
    whole = on_h200(observe(decode_bs=decode_bs, queue=(waiting(1, 50_000),), limits=limits))
    assert whole.mode is Mode.SPLIT


def test_the_wait_between_two_batches_counts_when_a_split_is_weighed() -> None:
    """Four fused steps of 32 tokens take 272 ms. Alone on 64 SMs 105 tokens take 217 ms, beside decode 249,
    and the decode step that is waited for takes 70 ms on 68 SMs."""
    decision = decide(observe(decode_bs=36, tbt_target_s=0.1, queue=(waiting(1, 105),)))
    assert decision.mode is Mode.FUSED


@pytest.mark.parametrize(("colocated_ratio", "mode"), [(1.05, Mode.SPLIT), (1.6, Mode.FUSED)])
def test_a_split_is_weighed_with_what_a_prefill_takes_beside_decode(
    colocated_ratio: float, mode: Mode
) -> None:
    context = PROFILE.policy_context
    assert isinstance(context.latency, SoloRunModel)
    fits = {
        sms: replace(fit, colocated_ratio=colocated_ratio) for sms, fit in context.latency.prefill.items()
    }
    policy = build_policy("auto", replace(context, latency=replace(context.latency, prefill=fits)))
    obs = observe(decode_bs=32, decode_reused_tokens=40_000, tbt_target_s=0.02, queue=(waiting(1, 8000),))
    assert policy.decide(obs, policy.initial_state())[0].mode is mode


def test_the_budget_follows_the_target_when_steps_are_fused() -> None:
    def budget(tbt_target_s: float) -> int:
        obs = observe(
            decode_bs=10, tbt_target_s=tbt_target_s, prefill=running_prefill(9000, mode=PrefillMode.CHUNKED)
        )
        return decide(obs).token_budget

    # 10 ms of decode; 1 ms a token; sizes of steps, the decode tokens among them.
    assert budget(0.100) == 96
    assert budget(0.150) == 128
    assert budget(0.300) == 288


def test_a_step_like_the_smallest_is_taken_when_no_budget_meets_the_target() -> None:
    """1 ms a token: 92 ms with the fewest, and 96 ms for the size of a graph that is within a tenth of it."""
    obs = observe(decode_bs=60, prefill=running_prefill(9000, mode=PrefillMode.CHUNKED))
    assert decide(obs).token_budget == 96
    longer = observe(decode_bs=65, prefill=running_prefill(9000, mode=PrefillMode.CHUNKED))
    assert decide(longer).token_budget == 32 + 65, "128 tokens take 1.3 times as long"


def test_a_prompt_ends_sooner_when_no_step_meets_the_target_and_many_tokens_take_no_longer() -> None:
    """On this H200 no fused step takes less than 10 ms."""
    chunk = running_prefill(6000, mode=PrefillMode.CHUNKED)
    decision = on_h200(observe(decode_bs=40, decode_reused_tokens=40_000, tbt_target_s=0.009, prefill=chunk))
    assert (decision.mode, decision.numbers.predicted_fused_s) == (Mode.FUSED, pytest.approx(0.01, rel=0.1))
    assert decision.token_budget >= 256


def test_a_chunks_prediction_is_of_what_it_holds_when_the_next_prompt_does_not_fit() -> None:
    latency = linear_context().latency
    chunk = replace(running_prefill(9000, mode=PrefillMode.CHUNKED), done_tokens=8950)
    obs = observe(decode_bs=10, tbt_target_s=0.3, prefill=chunk, queue=(waiting(1, 100), waiting(2, 5000)))
    held = PrefillShape.of([(50, 8950), (100, 0)])
    assert decide(obs).numbers.predicted_fused_s == latency.fused_s(held, obs.decode, 132)
    alone = replace(obs, waiting=obs.waiting[:1], waiting_count=1)
    assert decide(alone).numbers.predicted_fused_s == decide(obs).numbers.predicted_fused_s


def test_what_a_chunk_leaves_goes_to_the_next_when_it_fits_whole() -> None:
    chunk = replace(running_prefill(9000, mode=PrefillMode.CHUNKED), done_tokens=8950)
    obs = observe(decode_bs=10, tbt_target_s=0.3, prefill=chunk, queue=(waiting(1, 100), waiting(2, 5000)))
    assert decide(obs).admit == ("r1",)


def test_decode_runs_as_in_the_stock_engine_when_it_is_alone() -> None:
    decision = decide(observe(decode_bs=4))
    assert (decision.mode, decision.decode_steps, decision.reason) == (Mode.DECODE, 1, Reason.DECODE_ALONE)


@pytest.mark.parametrize(("tokens", "mode"), [(400, Mode.FUSED), (8000, Mode.SPLIT)])
def test_a_prompt_is_fused_when_nothing_decodes_and_only_its_launches_take_time(
    tokens: int, mode: Mode
) -> None:
    slow_host = replace(PROFILE.overheads, layer_launch_s=0.0006, fused_graph_tokens=16_384)
    policy = build_policy("auto", replace(PROFILE, overheads=slow_host, solo_run=()).policy_context)
    decision = policy.decide(observe(queue=(waiting(1, tokens),)), policy.initial_state())[0]
    assert (decision.mode, decision.admit) == (mode, ("r1",))
    assert decision.token_budget == (tokens if mode is Mode.FUSED else 0)


def test_the_least_slack_goes_first_when_a_batch_is_formed() -> None:
    queue = (waiting(1, 9000, deadline_s=50.0), waiting(2, 9000, deadline_s=20.0))
    assert decide(observe(queue=queue)).admit == ("r2",)
    assert decide(observe(queue=queue), "auto:fcfs").admit == ("r1",)


def test_the_lost_are_demoted_when_a_batch_is_formed() -> None:
    decision = decide(observe(queue=(waiting(1, 1000, deadline_s=0.5), waiting(2, 1000, deadline_s=9.0))))
    assert decision.deprioritize == ("r1",)
    assert decision.admit[0] == "r2"


def test_decode_steps_are_launched_ahead_when_a_long_prefill_runs_beside() -> None:
    long = running_prefill(10_000, launched=4, done=4)
    obs = observe(partition_id=1, decode_bs=5, prefill=long)
    ahead, single = decide(obs), decide(obs, "auto:nolookahead")
    assert (ahead.decode_steps, single.decode_steps) == (4, 1)
    assert ahead.prefill_layers >= single.prefill_layers


def test_the_running_gap_is_counted_when_a_fused_step_is_sized() -> None:
    chunk = running_prefill(9000, mode=PrefillMode.CHUNKED)
    obs = observe(decode_bs=10, tbt_target_s=0.150, prefill=chunk, now_s=5.0)
    assert decide(obs).token_budget == 128
    assert decide(replace(obs, last_token_s=4.960)).token_budget == 96  # 40 ms of the gap are gone


def test_the_budget_shrinks_when_fused_steps_took_longer_than_predicted() -> None:
    policy = build_policy("auto", linear_context())
    obs = observe(decode_bs=10, tbt_target_s=0.150, prefill=running_prefill(9000, mode=PrefillMode.CHUNKED))
    state = with_margin(policy.initial_state(), AS_PREDICTED)
    before = policy.decide(obs, state)[0].token_budget
    slow = took(Mode.FUSED, new_tokens=128, decode=obs.decode, predicted_s=0.1, measured_s=0.14)
    for _ in range(50):
        state = policy.learn(slow, state)
    assert state.estimates.fused.margin.ratio * state.estimates.fused.sizes.ratio(138) > 1.4
    assert policy.decide(obs, state)[0].token_budget < before


def test_a_size_that_always_takes_longer_costs_no_other_size_its_budget() -> None:
    policy = build_policy("auto", linear_context())
    state = with_margin(policy.initial_state(), AS_PREDICTED)
    slow = took(Mode.FUSED, new_tokens=200, predicted_s=0.1, measured_s=0.13)
    even = took(Mode.FUSED, new_tokens=400, predicted_s=0.2, measured_s=0.2)
    for _ in range(200):
        state = policy.learn(even, policy.learn(slow, state))
    assert state.estimates.fused.sizes.ratio(210) == pytest.approx(1.3, rel=0.01)
    assert state.estimates.fused.sizes.ratio(410) == pytest.approx(1.0)
    raised = state.estimates.fused.margin.ratio
    for _ in range(200):
        state = policy.learn(even, policy.learn(slow, state))
    assert state.estimates.fused.margin.ratio < raised, "it rose before the size was known, and falls since"


def test_a_prompt_alone_tells_nothing_of_what_tokens_may_wait_for() -> None:
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    alone = took(Mode.FUSED, new_tokens=15_000, decode=NO_DECODE, predicted_s=0.8, measured_s=1.8)
    learned = policy.learn(alone, state)
    assert learned.estimates.fused.margin == state.estimates.fused.margin
    assert learned.estimates.fused.sizes == state.estimates.fused.sizes.passed(1.8)
    assert learned.estimates.breaker != state.estimates.breaker


def test_prompts_are_split_while_the_host_takes_longer_than_the_target_to_launch_a_fused_step() -> None:
    """A fused step of 20 tokens beside 10 should take 30 of 50 ms, and took the host 51 lately."""
    policy = build_policy("auto", linear_context())
    obs = observe(decode_bs=10, tbt_target_s=0.05, queue=(waiting(1, 20),))
    quick = with_margin(policy.initial_state(), AS_PREDICTED)
    slow = with_margin(quick, LatencyMargin(deviation=0.0, floor_s=0.051))
    assert policy.decide(obs, quick)[0].mode is Mode.FUSED
    assert policy.decide(obs, slow)[0].mode is Mode.SPLIT
    for _ in range(200):
        as_predicted = took(Mode.SPLIT, partition_id=3, new_tokens=20, predicted_s=0.03, measured_s=0.03)
        slow = policy.learn(as_predicted, slow)
    assert policy.decide(obs, slow)[0].mode is Mode.FUSED, "it is tried again after a while"


def test_a_chunked_prompt_gets_what_the_hosts_time_holds_when_that_exceeds_the_target() -> None:
    policy = build_policy("auto", linear_context())
    state = with_margin(policy.initial_state(), LatencyMargin(deviation=0.0, floor_s=0.08))
    prefill = running_prefill(4000, mode=PrefillMode.CHUNKED)
    decision = policy.decide(observe(decode_bs=10, prefill=prefill), state)[0]
    assert decision.token_budget == 64, "54 tokens beside 10 take 64 of the 80 ms, 86 would take 96"


def test_a_batch_stops_growing_when_its_members_would_be_late_together() -> None:
    # Alone each takes 1.15 s of its 2: together the second, and with it the first, would come after 2.3 s.
    queue = (waiting(1, 1000, deadline_s=2.0), waiting(2, 1000, deadline_s=2.0))
    assert decide(observe(queue=queue)).admit == ("r1",)
    relaxed = (waiting(1, 1000, deadline_s=3.0), waiting(2, 1000, deadline_s=3.0))
    assert decide(observe(queue=relaxed)).admit == ("r1", "r2")


def test_the_lost_do_not_ride_along_when_others_can_be_saved() -> None:
    queue = (waiting(1, 10, deadline_s=0.0), waiting(2, 1000, deadline_s=9.0))
    assert decide(observe(queue=queue)).admit == ("r2",)
    assert decide(observe(queue=queue[:1])).admit == ("r1",)


def test_a_fixed_plan_takes_over_and_says_so_when_predictions_prove_wrong() -> None:
    policy = build_policy("auto", linear_context())
    obs = observe(decode_bs=10, queue=(waiting(1, 4000, deadline_s=9.0), waiting(2, 10, deadline_s=5.0)))

    def after(steps: int, measured_s: float, state: AutoState) -> AutoState:
        for _ in range(steps):
            state = policy.learn(took(Mode.FUSED, predicted_s=0.040, measured_s=measured_s), state)
        return state

    hiccup = after(10, 0.100, policy.initial_state())
    assert policy.decide(obs, hiccup)[0].reason is not Reason.PREDICTIONS_WRONG
    lost = after(20, 0.100, policy.initial_state())
    decision = policy.decide(obs, lost)[0]
    assert (decision.reason, decision.mode) == (Reason.PREDICTIONS_WRONG, Mode.FUSED)
    assert (decision.token_budget, decision.admit) == (512, ("r1", "r2"))
    regained = after(60, 0.041, lost)
    assert policy.decide(obs, regained)[0].reason is not Reason.PREDICTIONS_WRONG


def behind_chunks(*queue: WaitingRequest, deadline_s: float = 100.0) -> Observation:
    """9,000 tokens in chunks; a step of some 30 prompt tokens takes 40 ms, so more than 10 s are left."""
    chunk = running_prefill(9000, mode=PrefillMode.CHUNKED, deadline_s=deadline_s)
    return observe(decode_bs=10, prefill=chunk, queue=queue)


def test_a_prompt_in_chunks_sits_a_step_out_when_another_would_miss_its_target_behind_it() -> None:
    decision = decide(behind_chunks(waiting(1, 10, deadline_s=1.0), waiting(2, 8, deadline_s=1.0)))
    assert (decision.mode, decision.preempt) == (Mode.FUSED, True)
    assert decision.reason is Reason.PREEMPTED_FOR_SHORTER
    assert decision.admit == ("r1", "r2")
    assert decision.token_budget == 10 + 18, "the decoding requests and these prompts, whole"


@pytest.mark.parametrize(
    ("request_", "deadline_s"),
    [
        (waiting(1, 20, deadline_s=90.0), 100.0),  # it can wait
        (waiting(1, 5000, deadline_s=1.0), 100.0),  # it does not fit into a step
        (waiting(1, 20, deadline_s=0.001), 100.0),  # it is too late as it is
    ],
)
def test_a_prompt_in_chunks_goes_on_when_overtaking_it_saves_nothing_or_costs_its_target(
    request_: WaitingRequest, deadline_s: float
) -> None:
    assert not decide(behind_chunks(request_, deadline_s=deadline_s)).preempt
    assert not decide(behind_chunks(waiting(1, 20, deadline_s=1.0)), "auto:nopreempt").preempt


def test_a_prompt_in_chunks_goes_on_when_it_would_be_late_after_one_step_more() -> None:
    chunk = decide(behind_chunks())
    step_s, tokens = chunk.numbers.predicted_fused_s, chunk.token_budget - 10
    assert step_s is not None
    left_s, urgent = step_s * -(-9000 // tokens), waiting(1, 20, deadline_s=1.0)
    assert not decide(behind_chunks(urgent, deadline_s=left_s + 0.9 * step_s)).preempt
    assert decide(behind_chunks(urgent, deadline_s=left_s + 1.1 * step_s)).preempt


def test_a_late_prompt_in_chunks_goes_on_in_every_second_step() -> None:
    policy = build_policy("auto", linear_context())
    obs = behind_chunks(waiting(1, 20, deadline_s=1.0), deadline_s=0.5)
    state, waits = with_margin(policy.initial_state(), AS_PREDICTED), []
    for _ in range(4):
        decision, state = policy.decide(obs, state)
        waits.append(decision.preempt)
    assert waits == [True, False, True, False]


def test_the_batch_class_goes_behind_when_all_are_in_time() -> None:
    queue = (
        replace(waiting(1, 100, deadline_s=50.0), priority_class="batch"),
        waiting(2, 100, deadline_s=90.0),
    )
    assert decide(observe(queue=queue)).admit == ("r2", "r1")


def test_who_is_too_late_and_wants_to_know_is_refused() -> None:
    late = waiting(1, 1000, deadline_s=0.1)
    decision = decide(observe(queue=(late, replace(late, request_id="r2", refuses_late=True))))
    assert (decision.deprioritize, decision.refuse) == (("r1", "r2"), ("r2",))
    assert decision.admit == ("r1",), "nothing is begun for one that ends"


def test_a_batch_is_as_long_as_all_of_it_is_in_time_and_never_empty() -> None:
    """Requests of 1,000 tokens, each due a little later than the one before it can be done."""
    policy = build_policy("auto", linear_context())
    easy = tuple(waiting(i, 1000, deadline_s=1e6) for i in range(6))
    sms = policy.table.prefill_sms(observe(queue=easy).partition_id)
    latency = policy.context.latency
    for together in range(1, 7):
        whole_s = latency.colocated_ratio(sms) * latency.prefill_s(
            PrefillShape.of([(1000, 0)] * together), sms
        )
        due = replace(easy[0], deadline_s=whole_s + 0.001)
        batch = policy._timely(observe(queue=(due, *easy[1:])), (due, *easy[1:]), ())
        assert len(batch) == together
    hopeless = replace(easy[0], deadline_s=0.0)
    assert policy._timely(observe(queue=(hopeless, *easy[1:])), (hopeless, *easy[1:]), ()) == (hopeless,)
    assert len(policy._timely(observe(queue=easy), easy, {"r3"})) == 3, (
        "who is too late does not join the others"
    )


def test_prefills_are_corrected_by_what_they_take() -> None:
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    took = PrefillFeedback(sms=132, was_alone=True, predicted_s=1.0, measured_s=1.2)
    for _ in range(200):
        state = policy.learn_prefill(took, state)
    assert state.estimates.prefill_ratio == pytest.approx(1.2, abs=0.001)
    wild = replace(took, measured_s=1000.0)
    for _ in range(200):
        state = policy.learn_prefill(wild, state)
    assert state.estimates.prefill_ratio <= 1.5
    assert policy.learn_prefill(replace(took, predicted_s=0.0), state) == state
    assert policy.learn_prefill(replace(took, predicted_s=None), state) == state
