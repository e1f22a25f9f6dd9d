from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import LinearLatency, waiting

from pdmuxd.engine.core.overload import (
    LATE_ALLOWED,
    LATE_STEP,
    LOWEST_SHARE,
    MEMORY_S,
    NO_OVERLOAD,
    QUANTUM_TOKENS,
    Overload,
    lot,
)
from pdmuxd.engine.core.queueing import QueueState, order_by_slack
from pdmuxd.engine.core.slo import PriorityClass
from pdmuxd.engine.core.types import QueueOrder, WaitingRequest


def of(
    number: int, tenant: str, tokens: int = 1000, *, rank: PriorityClass = "standard", weight: float = 1.0
) -> WaitingRequest:
    request = waiting(number, tokens, deadline_s=1000.0)
    return replace(request, tenant=tenant, priority_class=rank, weight=weight)


def shares(**kept: float) -> Overload:
    return Overload(kept_shares={name: share for name, share in kept.items() if share < 1.0})


def names(requests: list[WaitingRequest]) -> list[str]:
    return [request.request_id for request in requests]


def within(share: float, tenant: str, count: int, *, over: bool) -> list[WaitingRequest]:
    """Requests whose lot is above the share, or is not."""
    found = (of(n, tenant) for n in range(10_000) if (lot(f"r{n}") > share) is over)
    return [next(found) for _ in range(count)]


def test_the_kept_share_falls_when_requests_come_too_late_and_not_below_the_least() -> None:
    overload = NO_OVERLOAD.with_late([of(1, "a")])
    assert overload.is_on
    assert overload.kept_shares["a"] == 1.0 - LATE_STEP
    for request in within(LOWEST_SHARE, "a", 1, over=False) * 200:
        overload = overload.with_late([request])
    assert overload.kept_shares["a"] == LOWEST_SHARE


def test_who_was_passed_over_and_is_late_does_not_count() -> None:
    (request,) = within(0.5, "a", 1, over=True)
    assert shares(a=0.5).with_late([request]).kept_shares["a"] == 0.5


def test_those_above_the_kept_share_go_behind_whatever_their_length() -> None:
    over, kept = within(0.5, "a", 2, over=True), within(0.5, "a", 2, over=False)
    ordered, passed_over = shares(a=0.5).ordered([*over, *kept])
    assert names(ordered) == names([*kept, *over])
    assert passed_over == frozenset(names(over))


def test_a_request_far_smaller_than_the_late_is_never_passed_over() -> None:
    (over,) = within(0.5, "a", 1, over=True)
    overload = replace(shares(a=0.5), late_tokens=20_000.0)
    assert overload.ordered([over])[1] == frozenset()
    assert overload.ordered([replace(over, new_tokens=2000)])[1] == {over.request_id}


def test_classes_come_before_slack_in_overload() -> None:
    queue = [of(1, "a", rank="batch"), of(2, "b"), of(3, "c", rank="interactive")]
    assert names(shares(x=0.5).ordered(queue)[0]) == ["r3", "r2", "r1"]


def test_a_tenant_that_had_less_goes_first_and_is_never_passed_over() -> None:
    light, heavy = within(0.5, "light", 1, over=True), within(0.5, "heavy", 1, over=False)
    overload = shares(light=0.5, heavy=0.5)
    assert names(overload.ordered([*heavy, *light])[0]) == names([*heavy, *light])
    full = replace(heavy[0], new_tokens=QUANTUM_TOKENS + 1)
    overload = overload.with_admitted([full], now_s=0.0, late=(), passed_over=(), waiting=[full])
    ordered, passed_over = overload.ordered([*heavy, *light])
    assert names(ordered) == names([*light, *heavy])
    assert passed_over == frozenset()


def test_usage_counts_by_weight_and_is_forgotten() -> None:
    a, b = of(1, "a", 40_000, weight=4.0), of(2, "b", 30_000)
    overload = shares(a=0.5, b=0.5).with_admitted([a, b], now_s=0.0, late=(), passed_over=(), waiting=[a, b])
    assert overload.behind([a, b]) == {"a"}, "10,000 tokens by weight against 30,000"
    later = overload.with_admitted([], now_s=3 * MEMORY_S, late=(), passed_over=(), waiting=[a, b])
    assert later.behind([a, b]) == set()


def test_it_ends_when_everybody_is_in_time_again() -> None:
    (over,) = within(0.99, "a", 1, over=True)
    overload = shares(a=0.99)
    admitted = overload.with_admitted(
        [over], now_s=0.0, late=(), passed_over={over.request_id}, waiting=[over]
    )
    assert admitted == NO_OVERLOAD
    late = overload.with_admitted(
        [over], now_s=0.0, late={over.request_id}, passed_over={over.request_id}, waiting=[over]
    )
    assert late.kept_shares["a"] == 0.99


def served(overload: Overload, request: WaitingRequest) -> Overload:
    return overload.with_admitted([request], now_s=0.0, late=(), passed_over=(), waiting=[request])


def test_requests_in_time_make_up_for_as_many_late_ones_as_are_allowed() -> None:
    (request,) = within(0.5, "a", 1, over=False)
    overload = shares(a=0.5)
    for _ in range(round(1.0 / LATE_ALLOWED)):
        overload = served(overload, request)
    assert overload.kept_shares["a"] == pytest.approx(0.5 + LATE_STEP)
    assert overload.with_late([request]).kept_shares["a"] == pytest.approx(0.5)


def test_a_late_request_among_many_in_time_is_no_overload() -> None:
    (request,) = within(0.5, "a", 1, over=False)
    overload = NO_OVERLOAD.with_late([request])
    for _ in range(round(1.0 / LATE_ALLOWED) + 1):
        overload = served(overload, request)
    assert overload is NO_OVERLOAD


def test_a_queue_says_that_shares_decided() -> None:
    state = QueueState(overload=shares(a=0.5))
    queue = order_by_slack([of(1, "a")], now_s=0.0, latency=LinearLatency(), sms=132, state=state)
    assert queue.by is QueueOrder.FAIR_SHARE
    calm = order_by_slack([of(1, "a")], now_s=0.0, latency=LinearLatency(), sms=132)
    assert calm.by is QueueOrder.SLACK


def test_a_late_request_is_counted_once() -> None:
    late = replace(of(1, "a"), deadline_s=0.1)
    first = order_by_slack([late], now_s=5.0, latency=LinearLatency(), sms=132)
    again = replace(late, is_deprioritized=True)
    second = order_by_slack([again], now_s=6.0, latency=LinearLatency(), sms=132, state=first.state)
    assert second.state is first.state
    assert first.state.overload.kept_shares["a"] == 1.0 - LATE_STEP


@given(
    tenants=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    kept=st.fixed_dictionaries({name: st.floats(LOWEST_SHARE, 1.0) for name in "abc"}),
)
def test_nobody_is_lost_or_doubled_in_overload(tenants: list[str], kept: dict[str, float]) -> None:
    queue = [of(n, tenant) for n, tenant in enumerate(tenants)]
    ordered, passed_over = shares(**kept).ordered(queue)
    assert sorted(names(ordered)) == sorted(names(queue))
    assert passed_over <= set(names(queue))
    assert shares(**kept).ordered(queue) == (ordered, passed_over)
