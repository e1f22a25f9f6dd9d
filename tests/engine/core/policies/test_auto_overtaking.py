"""`auto`: who overtakes a prefill by layers, and who may be set aside how often (LinearLatency)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, running_prefill, waiting, with_margin

from pdmuxd.engine.core.estimates.latency_margin import LatencyMargin
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, EngineLimits, Observation, Reason

AS_PREDICTED = LatencyMargin(deviation=0.0)


def decide(obs: Observation, spec: str = "auto") -> Decision:
    policy = build_policy(spec, linear_context())
    return policy.decide(obs, with_margin(policy.initial_state(), AS_PREDICTED))[0]


@pytest.mark.parametrize(("short_deadline_s", "preempts"), [(3.0, True), (60.0, False)])
def test_a_waiting_request_overtakes_only_when_it_would_miss_its_target(
    short_deadline_s: float, preempts: bool
) -> None:
    long = running_prefill(10_000, launched=8, done=8, deadline_s=20.0)
    decision = decide(observe(prefill=long, queue=(waiting(1, 100, deadline_s=short_deadline_s),)))
    assert decision.preempt is preempts


URGENT = (waiting(1, 100, deadline_s=3.0), waiting(2, 300, deadline_s=4.0), waiting(3, 200, deadline_s=90.0))


def test_all_who_could_not_wait_overtake_together() -> None:
    long = running_prefill(10_000, launched=8, done=8, deadline_s=20.0)
    decision = decide(observe(prefill=long, queue=URGENT))
    assert decision.preempt
    assert decision.admit == ("r1", "r2")


@pytest.mark.parametrize(
    ("deadline_s", "was_preempted", "preempts"),
    [
        (20.0, True, True),  # again: it is still in time
        (8.9, True, False),  # 8.6 s are left of it beside decode, and who overtakes takes 0.46
        (8.9, False, False),
        (5.0, False, True),  # unreachable: once
        (5.0, True, False),
    ],
)
def test_a_prefill_is_overtaken_again_only_while_it_stays_in_time(
    deadline_s: float, was_preempted: bool, preempts: bool
) -> None:
    long = running_prefill(10_000, launched=8, done=8, deadline_s=deadline_s, was_preempted=was_preempted)
    decision = decide(observe(prefill=long, queue=(waiting(1, 400, deadline_s=3.0),)))
    assert decision.preempt is preempts


def nested(*deadlines_s: float, spec: str = "auto", limits: EngineLimits | None = None) -> Decision:
    """4,000 tokens that overtook 10,000 are to be overtaken by 100: 3.45, 8.625 and 0.115 s beside decode.
    The deadlines of the two, who runs first."""
    running, long = deadlines_s
    return decide(
        observe(
            prefill=running_prefill(4000, launched=8, done=8, deadline_s=running),
            set_aside=(running_prefill(10_000, launched=8, done=8, deadline_s=long, was_preempted=True),),
            queue=(waiting(1, 100, deadline_s=1.0),),
            limits=limits,
        ),
        spec,
    )


def test_who_has_overtaken_is_overtaken_when_all_stay_in_time() -> None:
    decision = nested(5.0, 20.0)
    assert (decision.preempt, decision.admit) == (True, ("r1",))
    assert not nested(5.0, 20.0, spec="auto:nonest").preempt
    assert not nested(5.0, 20.0, limits=EngineLimits(max_set_aside=1)).preempt


@pytest.mark.parametrize(
    ("running_s", "long_s", "preempts"),
    [
        (3.50, 20.0, False),  # 0.05 s to spare
        (3.60, 20.0, True),
        (5.0, 12.15, False),  # both take 12.075 s
        (5.0, 12.25, True),
        (5.0, 11.0, True),  # is lost whoever goes first
    ],
)
def test_nobody_overtakes_who_would_make_one_below_miss_its_target(
    running_s: float, long_s: float, preempts: bool
) -> None:
    assert nested(running_s, long_s).preempt is preempts


def test_what_is_set_aside_keeps_a_part_of_the_memory() -> None:
    # 10,000 and 4,000 set aside keep that of 3,500: 100 of 3,600 fit.
    assert nested(5.0, 20.0, limits=EngineLimits(max_whole_tokens=3600)).preempt
    assert not nested(5.0, 20.0, limits=EngineLimits(max_whole_tokens=3599)).preempt


@pytest.mark.parametrize(("deadline_s", "admits"), [(1.0, ("r1",)), (10.5, ())])
def test_the_urgent_go_before_the_one_set_aside_when_what_overtook_it_is_done(
    deadline_s: float, admits: tuple[str, ...]
) -> None:
    long = running_prefill(10_000, launched=8, done=8, deadline_s=20.0, was_preempted=True)
    decision = decide(observe(preempted=long, queue=(waiting(1, 100, deadline_s=deadline_s),)))
    assert (decision.admit, decision.resume, decision.preempt) == (admits, not admits, False)


def test_no_more_overtake_than_the_running_prefill_can_wait_for() -> None:
    long = running_prefill(10_000, launched=8, done=8, deadline_s=9.2)
    decision = decide(observe(prefill=long, queue=URGENT))
    assert decision.admit == ("r1", "r2")
    tighter = replace(long, earliest_deadline_s=8.9)
    assert decide(observe(prefill=tighter, queue=URGENT)).admit == ("r1",)


def test_one_that_comes_too_late_because_of_the_others_stays_in_the_queue() -> None:
    long = running_prefill(10_000, launched=8, done=8, deadline_s=20.0)
    queue = (waiting(1, 1500, deadline_s=2.1), waiting(2, 100, deadline_s=1.5))
    assert decide(observe(prefill=long, queue=queue)).admit == ("r1",)


def test_layers_in_flight_end_before_anyone_overtakes() -> None:
    long = running_prefill(10_000, launched=10, done=8, deadline_s=20.0)
    decision = decide(observe(prefill=long, queue=URGENT, decode_bs=4, partition_id=1))
    assert (decision.preempt, decision.prefill_layers) == (False, 0)
    assert decision.reason is Reason.PREEMPT_WHEN_DRAINED


def test_the_batch_class_is_overtaken_whatever_that_does_to_its_target() -> None:
    running = running_prefill(4000, launched=8, done=8, deadline_s=3.5)
    batch_class = replace(
        running, requests=tuple(replace(r, priority_class="batch") for r in running.requests)
    )
    urgent = (waiting(1, 500, deadline_s=1.5),)
    assert not decide(observe(decode_bs=4, prefill=running, queue=urgent)).preempt
    assert decide(observe(decode_bs=4, prefill=batch_class, queue=urgent)).preempt
