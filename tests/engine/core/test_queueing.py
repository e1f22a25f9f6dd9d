from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import LinearLatency, observe, running_prefill, waiting

from pdmuxd.engine.core.queueing import (
    AGED_SHARE,
    AGEING_BOUND_S,
    DECODE_HEADROOM_TOKENS,
    LATE_PRICE,
    OrderedQueue,
    QueueState,
    admitted,
    fitting_within,
    form_prefill_batch,
    order_by_slack,
    shape_of,
    tenants_short_of_slots,
)
from pdmuxd.engine.core.types import EngineLimits, QueueOrder, WaitingRequest


def order(
    queue: list[WaitingRequest],
    *,
    now_s: float = 0.0,
    aged_credit_tokens: float = 0.0,
    short_of_slots: Collection[str] | None = None,
    only_aged: bool = False,
) -> OrderedQueue:
    return order_by_slack(
        queue,
        now_s=now_s,
        latency=LinearLatency(),
        sms=132,
        state=QueueState(aged_credit_tokens=aged_credit_tokens),
        short_of_slots=short_of_slots,
        only_aged=only_aged,
    )


def ids(queue: OrderedQueue) -> list[str]:
    return [request.request_id for request in queue.order]


def test_who_comes_too_late_for_its_whole_answer_is_still_in_time_for_its_first_token() -> None:
    whole = replace(waiting(1, 1000, deadline_s=0.5), ttft_deadline_s=4.0)
    queue = [whole, waiting(2, 1000, deadline_s=5.0), waiting(3, 1000, deadline_s=3.0)]
    found = order(queue)
    assert (ids(found), found.unreachable) == (["r3", "r1", "r2"], ())
    assert found.order[1].deadline_s == 4.0
    both = order([replace(whole, ttft_deadline_s=0.9)])
    assert (both.unreachable, both.order[0].deadline_s) == (("r1",), 0.5)
    soon = order([replace(whole, deadline_s=2.0), waiting(3, 1000, deadline_s=3.0)])
    assert (ids(soon), soon.order[0].deadline_s) == (["r1", "r3"], 2.0)


def test_least_slack_comes_first_when_all_can_make_it() -> None:
    # A prefill takes 1 ms a token: slacks are 9, 1.9 and 4 s.
    queue = [
        waiting(1, 1000, deadline_s=10.0),
        waiting(2, 100, deadline_s=2.0),
        waiting(3, 1000, deadline_s=5.0),
    ]
    assert ids(order(queue)) == ["r2", "r3", "r1"]


def test_the_lost_wait_behind_when_others_can_be_saved() -> None:
    queue = [waiting(1, 1000, deadline_s=0.5), waiting(2, 100, deadline_s=2.0)]
    ordered = order(queue)
    assert ids(ordered) == ["r2", "r1"]
    assert ordered.unreachable == ("r1",)


def test_the_oldest_lost_comes_first_when_it_has_aged_and_is_paid_for() -> None:
    unreachable = waiting(1, 1000, deadline_s=0.5)
    live = waiting(2, 100, deadline_s=200.0)
    late_s = AGEING_BOUND_S + 1.0
    assert ids(order([unreachable, live], now_s=late_s, aged_credit_tokens=999.0)) == ["r2", "r1"]
    assert ids(order([unreachable, live], now_s=late_s, aged_credit_tokens=1000.0)) == ["r1", "r2"]
    assert ids(order([unreachable, live], now_s=AGEING_BOUND_S - 1.0, aged_credit_tokens=1000.0)) == [
        "r2",
        "r1",
    ]


def test_credit_is_earned_and_spent_when_batches_are_admitted() -> None:
    live, unreachable = waiting(1, 1000, deadline_s=10.0), waiting(2, 500, deadline_s=0.1)

    def credit(before_tokens: float, batch: list[WaitingRequest], now_s: float = 0.0) -> float:
        queue = order([live, unreachable], aged_credit_tokens=before_tokens, now_s=now_s)
        return admitted(queue, batch, now_s).aged_credit_tokens

    assert credit(0.0, [live]) == pytest.approx(AGED_SHARE * 1000)
    assert credit(600.0, [unreachable], AGEING_BOUND_S + 1.0) == 100.0
    assert credit(LATE_PRICE * 500 + 100.0, [unreachable]) == 100.0
    assert credit(0.0, [unreachable]) == 0.0


def test_the_smallest_of_the_late_goes_at_once_when_the_credit_is_some_times_its_cost() -> None:
    small, large = waiting(1, 100, deadline_s=0.01), waiting(2, 5000, deadline_s=0.01)
    queue = [large, small, waiting(3, 100, deadline_s=200.0)]
    assert ids(order(queue, aged_credit_tokens=LATE_PRICE * 100 - 1.0)) == ["r3", "r2", "r1"]
    ordered = order(queue, aged_credit_tokens=LATE_PRICE * 100)
    assert (ids(ordered), ordered.by) == (["r1", "r3", "r2"], QueueOrder.AGED)
    assert ids(order(queue, aged_credit_tokens=LATE_PRICE * 100, only_aged=True)) == ["r3", "r2", "r1"]
    aged_s = AGEING_BOUND_S + 1.0
    assert ids(order(queue, now_s=aged_s, aged_credit_tokens=5000.0, only_aged=True))[0] == "r2"
    assert ids(order(queue, now_s=aged_s, aged_credit_tokens=5000.0))[0] == "r1"


@given(
    lengths=st.lists(st.tuples(st.integers(1, 5000), st.floats(0.0, 20.0)), max_size=20),
    now_s=st.floats(0.0, 100.0),
    credit=st.floats(0.0, 10_000.0),
)
def test_nobody_is_lost_or_doubled_when_a_queue_is_ordered(
    lengths: list[tuple[int, float]], now_s: float, credit: float
) -> None:
    queue = [waiting(i, n, deadline_s=d) for i, (n, d) in enumerate(lengths)]
    ordered = order(queue, now_s=now_s, aged_credit_tokens=credit)
    arrivals = {request.request_id: index for index, request in enumerate(queue)}
    assert list(ordered.unreachable) == sorted(ordered.unreachable, key=lambda name: arrivals[name])
    assert sorted(ids(ordered)) == sorted(request.request_id for request in queue)
    assert ids(order(queue, now_s=now_s, aged_credit_tokens=credit)) == ids(ordered)


def test_nobody_starves_when_the_engine_is_always_overloaded() -> None:
    """A lost request among endless savable ones: it is served once the others have paid for it."""
    unreachable = waiting(0, 2000, deadline_s=0.1)
    now_s, credit, number = 0.0, 0.0, 0
    for _ in range(10_000):
        fresh = []
        for _ in range(3):
            number += 1
            fresh.append(replace(waiting(number, 500, deadline_s=now_s + 5.0), arrival_s=now_s))
        ordered = order([unreachable, *fresh], now_s=now_s, aged_credit_tokens=credit)
        served = ordered.order[0]
        if served is unreachable:
            break
        credit = admitted(ordered, [served], now_s).aged_credit_tokens
        now_s += 0.5
    assert served is unreachable
    assert now_s <= AGEING_BOUND_S + 0.5 * unreachable.new_tokens / (AGED_SHARE * 500) + 1.0


def test_a_near_miss_is_not_tried_when_a_request_has_waited_long() -> None:
    # Due at 10 s, 1 s of work: at 9.5 s too late by far, at 8.5 s half a second short of the margin of 0.8 s.
    request = waiting(1, 1000, deadline_s=10.0)
    assert order([request], now_s=8.1).unreachable == ()
    assert order([request], now_s=8.5).unreachable == ("r1",)
    # One that has just come may be that tight: it is served at once.
    tight = replace(waiting(2, 1000, deadline_s=10.0), arrival_s=8.5, deadline_s=9.6)
    assert order([tight], now_s=8.5).unreachable == ()


def names(batch: tuple[WaitingRequest, ...]) -> list[str]:
    return [request.request_id for request in batch]


def of_tenant(tenant: str, number: int, *, weight: float = 1.0, deadline_s: float = 10.0) -> WaitingRequest:
    return replace(waiting(number, 100, deadline_s=deadline_s), tenant=tenant, weight=weight)


def test_who_holds_few_slots_goes_first_when_they_are_short() -> None:
    queue = (of_tenant("many", 1, deadline_s=1.0), of_tenant("few", 2))
    obs = observe(queue=queue)
    assert tenants_short_of_slots(obs) is None
    assert ids(order(list(queue))) == ["r1", "r2"]
    short = tenants_short_of_slots(replace(obs, slots_held=(("many", 254), ("few", 1))))
    assert short == {"few"}
    assert ids(order(list(queue), short_of_slots=short)) == ["r2", "r1"]


def test_slots_count_by_weight_when_they_are_short() -> None:
    queue = (of_tenant("heavy", 1, weight=4.0), of_tenant("light", 2))
    held = (("heavy", 200), ("light", 50))
    assert tenants_short_of_slots(observe(queue=queue)) is None
    assert tenants_short_of_slots(replace(observe(queue=queue), slots_held=held)) == frozenset()
    assert tenants_short_of_slots(replace(observe(queue=queue[1:]), slots_held=held)) == frozenset()


@given(
    held=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 256)),
    tenants=st.lists(st.sampled_from("abcd"), min_size=1, max_size=12),
    deadlines_s=st.lists(st.floats(0.0, 20.0), min_size=12, max_size=12),
)
def test_nobody_is_lost_and_the_most_holding_tenant_is_never_first_by_slots(
    held: dict[str, int], tenants: list[str], deadlines_s: list[float]
) -> None:
    queue = [
        of_tenant(t, i, deadline_s=s) for i, (t, s) in enumerate(zip(tenants, deadlines_s, strict=False))
    ]
    obs = replace(observe(queue=tuple(queue)), slots_held=tuple(held.items()))
    short = tenants_short_of_slots(obs)
    assert (short is None) == (not held)
    most = max(held.get(t, 0) for t in tenants)
    assert all(2 * held.get(tenant, 0) < most for tenant in short or ())
    before, after = order(queue), order(queue, short_of_slots=short)
    assert sorted(ids(after)) == sorted(ids(before))
    assert after.unreachable == before.unreachable
    live = [r for r in after.order if r.request_id not in after.unreachable]
    assert [r.tenant in (short or ()) for r in live] == sorted(
        (r.tenant in (short or ()) for r in live), reverse=True
    )


@given(
    lengths=st.lists(st.integers(1, 40_000), max_size=20),
    decode_bs=st.integers(0, 20),
    kv_free_tokens=st.integers(0, 100_000),
)
def test_a_batch_is_a_prefix_within_the_limits_when_requests_wait(
    lengths: list[int], decode_bs: int, kv_free_tokens: int
) -> None:
    queue = tuple(waiting(i, n) for i, n in enumerate(lengths))
    limits = EngineLimits(max_decode_bs=16)
    batch = form_prefill_batch(
        observe(queue=queue, decode_bs=decode_bs, kv_free_tokens=kv_free_tokens, limits=limits)
    )
    assert batch == queue[: len(batch)]
    assert len(batch) <= max(0, 16 - decode_bs)
    total = sum(r.new_tokens for r in batch)
    assert len(batch) <= 1 or total <= limits.max_prefill_tokens
    if decode_bs and batch:
        assert total <= kv_free_tokens - DECODE_HEADROOM_TOKENS * decode_bs
    if queue and not decode_bs:
        assert batch, "an idle engine always admits the first request"


def test_a_policys_own_limit_is_within_the_engines() -> None:
    queue = (waiting(0, 3000), waiting(1, 3000), waiting(2, 3000))
    obs = observe(queue=queue, limits=EngineLimits(max_prefill_tokens=6000))
    assert names(form_prefill_batch(obs, max_tokens=8192)) == ["r0", "r1"]
    assert names(form_prefill_batch(obs, max_tokens=5000)) == ["r0"]


def test_nobody_overtakes_when_the_second_request_is_too_long() -> None:
    queue = (waiting(0, 10_000), waiting(1, 10_000), waiting(2, 10))
    assert names(form_prefill_batch(observe(queue=queue))) == ["r0"]


def test_a_batch_ends_where_prompts_with_images_begin_or_end() -> None:
    queue = tuple(replace(waiting(i, 10), is_whole=is_whole) for i, is_whole in enumerate((0, 0, 1, 1, 0)))
    assert names(form_prefill_batch(observe(queue=queue))) == ["r0", "r1"]
    assert names(form_prefill_batch(observe(queue=queue[2:]))) == ["r2", "r3"]


def test_a_request_is_taken_when_it_fills_the_last_of_the_kv_pool() -> None:
    room = 100 + 2 * DECODE_HEADROOM_TOKENS
    for free_tokens, taken in ((room, ["r0"]), (room - 1, [])):
        obs = observe(queue=(waiting(0, 100),), decode_bs=2, kv_free_tokens=free_tokens)
        assert names(form_prefill_batch(obs)) == taken


def test_slots_are_kept_for_the_set_aside_batch_when_one_is_preempted() -> None:
    limits = EngineLimits(max_decode_bs=2)
    obs = observe(queue=(waiting(1, 10), waiting(2, 10)), preempted=running_prefill(100), limits=limits)
    assert names(form_prefill_batch(obs)) == ["r1"]


def test_slots_are_kept_for_the_prefill_that_runs_when_others_join_or_overtake_it() -> None:
    limits = EngineLimits(max_decode_bs=3)
    obs = observe(queue=(waiting(1, 10), waiting(2, 10), waiting(3, 10)), limits=limits)
    assert names(form_prefill_batch(obs)) == ["r1", "r2", "r3"]
    assert names(form_prefill_batch(replace(obs, prefill=running_prefill(100)))) == ["r1", "r2"]
    both = replace(obs, prefill=running_prefill(100), set_aside=(running_prefill(200),))
    assert names(form_prefill_batch(both)) == ["r1"]


def test_the_sums_are_those_of_the_batch_when_a_shape_is_made() -> None:
    shape = shape_of((waiting(0, 3, reused_tokens=2), waiting(1, 4)))
    assert (shape.bs, shape.new_tokens, shape.reused_tokens) == (2, 7, 2)
    assert (shape.sum_new_squared, shape.sum_new_times_reused) == (25, 6)


@pytest.mark.parametrize(
    ("tokens", "may_begin", "fitting", "asked"),
    [
        (0, True, (), ()),
        (10, False, ("r1",), ()),
        (25, False, ("r1", "r4", "r5"), ("r3", "r4", "r5")),
        (25, True, ("r1", "r3"), ("r3", "r4", "r5")),
        (47, True, ("r1", "r3", "r4", "r5"), ("r5",)),
        (40, False, ("r1", "r3"), ()),
        (55, True, ("r1", "r3", "r4", "r5"), ()),
    ],
)
def test_what_a_step_leaves_goes_to_those_that_fit_and_to_one_that_begins(
    tokens: int, may_begin: bool, fitting: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    """10, 5 (too late), 30, 5 and 10 tokens: the first that does not fit is asked for."""
    batch = tuple(waiting(i + 1, new) for i, new in enumerate((10, 5, 30, 5, 10)))
    questions = []

    def begins(rest: tuple[WaitingRequest, ...]) -> bool:
        questions.append(tuple(request.request_id for request in rest))
        return may_begin

    found = fitting_within(batch, tokens, ("r2",), begins)
    assert tuple(request.request_id for request in found) == fitting
    assert questions == ([asked] if asked else [])
