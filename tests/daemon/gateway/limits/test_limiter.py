from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, date, datetime

import pytest
from limited_tenant import DEAR

from pdmuxd.controlplane.tenants.prices import NANOS_PER_CENT
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.engine.core.errors import RequestError


def refused(rig, **options):
    with pytest.raises(RequestError) as caught:
        rig.enter(**options)
    assert caught.value.status == 429
    return caught.value


async def test_the_limit_its_value_and_its_use_are_named_when_requests_are_too_many(rig):
    rig.use(requests_per_min=3)
    for _ in range(3):
        rig.end(rig.enter())
        rig.clock.now_s += 10
    error = refused(rig)
    assert (error.code, error.retry_after_s) == ("requests_per_min", 31)
    assert str(error) == "requests_per_min of tenant chat is 3, and 3 are used; try again in 31 s"
    named = {"name": "requests_per_min", "of": "tenant chat", "value": 3, "used": 3}
    assert error.details == {"limit": {**named, "reserved": 0, "may_use": 1, "retry_after_s": 31}}
    rig.clock.now_s += 30
    refused(rig)
    rig.clock.now_s += 1
    rig.enter()
    refused(rig)


def read_and_refuse(rig, status=400, **of_key):
    with pytest.raises(RequestError) as caught, rig.limiter.reading(rig.identity(**of_key)):
        raise RequestError("no", status=status, code="no")
    return caught.value


async def test_a_request_that_was_read_and_refused_is_one_of_its_minute(rig):
    rig.use(requests_per_min=3)
    with rig.limiter.reading(rig.identity()):
        pass
    assert read_and_refuse(rig, status=503).code == "no"
    assert rig.limiter.of_tenant("chat")["requests_per_min"] == 0
    read_and_refuse(rig)
    rig.enter()
    read_and_refuse(rig, requests_per_min=9)
    error = read_and_refuse(rig)
    assert (error.status, error.code, error.details["limit"]["used"]) == (429, "requests_per_min", 3)
    rig.use(requests_per_min=(3, "wait"))
    assert read_and_refuse(rig).code == "no", "it would wait for its turn when it is read"
    rig.use(tokens_per_day=0)
    assert read_and_refuse(rig).code == "no"


async def test_no_more_are_read_at_once_than_there_is_room_for_in_a_minute(rig):
    rig.use(requests_per_min=3)
    rig.enter()
    with rig.limiter.reading(rig.identity()), rig.limiter.reading(rig.identity()):
        assert read_and_refuse(rig).status == 429
    assert read_and_refuse(rig).status == 400


async def test_tokens_count_as_they_were_used_when_more_were_reserved(rig):
    rig.use(input_tokens_per_min=1000, output_tokens_per_min=1000)
    first = rig.enter(size=400, most=600)
    assert rig.limiter.of_tenant("chat")["input_tokens_per_min"] == 400
    assert rig.limiter.of_tenant("chat")["output_tokens_per_min"] == 600
    rig.end(first, new=100, output=20)
    assert rig.limiter.of_tenant("chat")["input_tokens_per_min"] == 100
    assert rig.limiter.of_tenant("chat")["output_tokens_per_min"] == 20


async def test_the_time_to_retry_is_when_enough_of_the_window_is_over(rig):
    rig.use(output_tokens_per_min=1000)
    rig.end(rig.enter(most=600), output=600)
    rig.clock.now_s += 20
    rig.end(rig.enter(most=600), output=600)
    error = refused(rig, most=10)
    assert (error.retry_after_s, error.details["limit"]["used"]) == (41, 1200)
    rig.clock.now_s += 41
    rig.enter(most=10)


async def test_the_time_to_retry_is_short_when_only_requests_in_flight_are_in_the_way(rig):
    rig.use(tokens_per_day=1000)
    rig.enter(size=0, most=900)
    rig.enter(size=0, most=5000)
    error = refused(rig, size=0, most=500)
    assert error.retry_after_s == 1
    assert str(error) == (
        "tokens_per_day of tenant chat is 1000, and 0 are used and 5900 reserved for requests in flight; "
        "this one may use 500; try again in 1 s"
    )


@pytest.mark.parametrize(("count", "used"), [(False, 100), (True, 1000)])
async def test_cached_tokens_count_only_when_the_tenant_says_so(rig, count, used):
    rig.use(input_tokens_per_min=5000, tokens_per_day=5000, count_cached_tokens=count)
    rig.end(rig.enter(), new=100, cached=900, output=50)
    found = rig.limiter.of_tenant("chat")
    assert (found["input_tokens_per_min"], found["tokens_per_day"]) == (used, used + 50)


async def test_a_request_that_may_pass_a_limit_is_let_in_once_at_a_time(rig):
    rig.use(input_tokens_per_min=50)
    large = rig.enter(size=4000)
    rig.enter(size=50)  # what the large one reserves is in nobody's way
    refused(rig, size=1)
    rig.end(large, new=49)
    refused(rig, size=1)


async def test_a_limit_can_be_used_up_when_requests_may_use_more_than_all_of_it(rig):
    rig.use(tokens_per_day=1000)
    for _ in range(10):
        rig.end(rig.enter(size=0, most=131_072), new=0, output=100)
    assert refused(rig, size=0).details["limit"]["used"] == 1000


async def test_a_flood_does_not_exceed_a_limit_of_tokens_when_short_answers_came_before(rig):
    rig.use(output_tokens_per_min=1000)
    for _ in range(60):
        rig.end(rig.enter(most=1), output=1)
    let_in = []
    for _ in range(600):
        with contextlib.suppress(RequestError):
            let_in.append(rig.enter(most=500))
    for rid in let_in:
        rig.end(rid, output=500)
    assert rig.limiter.of_tenant("chat")["output_tokens_per_min"] <= 1000 + 500


async def test_a_part_of_the_reserve_is_free_when_some_prompts_of_a_request_have_ended(rig):
    rig.use(output_tokens_per_min=1000)
    rid = rig.enter(most=500, answers=2)
    refused(rig, most=100)
    rig.told(f"{rid}_0", output=10)
    rig.enter(most=100)


async def test_places_are_counted_when_a_request_makes_several_answers(rig):
    rig.use(concurrency=5)
    first = rig.enter(answers=4)
    assert refused(rig, answers=2).details["limit"]["used"] == 4
    rig.enter(answers=1)
    rig.limiter.leave(first, was_served=False)
    rig.enter(answers=4)


async def test_a_key_has_limits_of_its_own_beside_those_of_its_tenant(rig):
    rig.use(requests_per_min=3)
    narrow, wide = rig.identity("key_a", requests_per_min=1), rig.identity("key_b")
    rig.enter(identity=narrow)
    error = refused(rig, identity=narrow)
    assert error.details["limit"]["of"] == "key key_a"
    rig.enter(identity=wide)
    rig.enter(identity=wide)
    assert refused(rig, identity=wide).details["limit"]["of"] == "tenant chat"
    assert rig.limiter.of_key("key_a", "chat")["requests_per_min"] == 1


async def test_a_budget_ends_at_midnight_utc_and_survives_a_restart(rig):
    rig.use(tokens_per_day=150)
    rig.end(rig.enter(), new=100, output=60)
    error = refused(rig)
    assert (error.code, error.retry_after_s) == ("tokens_per_day", 12 * 3600)
    kept = rig.limiter.take_unsaved()
    assert kept == {
        UseOf("chat", WHOLE_TENANT, date(2026, 1, 31)): Tokens(input_tokens=100, output_tokens=60)
    }
    assert rig.limiter.take_unsaved() == {}

    rig.limiter = Limiter(clock=rig.clock, wall=rig.clock.wall)
    rig.limiter.use_tenants({"chat": rig.tenant})
    rig.limiter.load(kept)
    assert refused(rig).details["limit"]["used"] == 160
    rig.clock.now_s += 12 * 3600
    rig.enter()


async def test_a_budget_of_a_month_is_refilled_on_its_first_day(rig):
    rig.use(tokens_per_month=150)
    rig.limiter.load({UseOf("chat", WHOLE_TENANT, date(2026, 1, 2)): Tokens(input_tokens=150)})
    error = refused(rig)
    until_february = datetime(2026, 2, 1, tzinfo=UTC) - rig.clock.wall()
    assert error.retry_after_s == until_february.total_seconds()
    rig.clock.now_s += error.retry_after_s
    rig.enter()


async def test_a_day_keeps_its_use_when_the_clock_is_set_back_over_the_turn_of_a_month(rig):
    rig.use(tokens_per_day=150)
    rig.clock.now_s += 20 * 86_400  # into February
    rig.end(rig.enter(), new=100, output=50)
    refused(rig)
    rig.clock.now_s -= 20 * 86_400
    rig.end(rig.enter(), new=100, output=50)
    refused(rig)
    rig.clock.now_s += 20 * 86_400
    refused(rig)


async def test_what_was_reserved_is_counted_when_no_record_comes(rig, monkeypatch):
    monkeypatch.setattr("pdmuxd.daemon.gateway.limits.limiter.RECORD_WITHIN_S", 0.0)
    rig.use(tokens_per_day=10_000)
    for rid, was_served in (("kept", True), ("refused", False)):
        rig.enter(rid)
        rig.limiter.leave(rid, was_served=was_served)
    async with asyncio.timeout(60):
        while not rig.limiter.take_unsaved():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    assert rig.limiter.of_tenant("chat")["tokens_per_day"] == 228


async def test_several_prompts_of_a_request_are_settled_one_by_one(rig):
    rig.use(tokens_per_day=10_000)
    rid = rig.enter(answers=2, size=100)
    assert rig.limiter.of_tenant("chat")["tokens_per_day"] == 100 + 2 * 128
    for number in (0, 1):
        rig.told(f"{rid}_{number}", new=30, output=5)
    rig.limiter.leave(rid, was_served=True)
    assert rig.limiter.of_tenant("chat")["tokens_per_day"] == 2 * (30 + 5)
    assert rig.limiter.of_tenant("chat")["concurrency"] == 0


async def test_requests_wait_in_order_when_the_limit_says_so(rig):
    rig.use(concurrency=(1, "wait"))
    first, order = rig.enter(), asyncio.Queue()

    async def come(name):
        await rig.limiter.enter(name, rig.identity(), Need())
        order.put_nowait(name)

    assert not rig.limiter.enter_now("b", rig.identity(), Need())
    tasks = []
    for name in "bcd":
        tasks.append(asyncio.create_task(come(name)))
        await asyncio.sleep(0)
    # Nobody comes in between while others wait.
    rig.end(first)
    assert not rig.limiter.enter_now("e", rig.identity(), Need())
    for name in "bcd":
        assert await order.get() == name
        rig.end(name)
    await asyncio.gather(*tasks)


async def test_a_request_is_refused_with_the_limit_when_its_longest_wait_is_over(rig):
    rig.use(requests_per_min=(1, "wait"), max_wait_ms=1)
    rig.enter()
    with pytest.raises(RequestError, match=r"it waited 0\.001 s for its turn; try again in 61 s"):
        await rig.limiter.enter("late", rig.identity(), Need())
    assert rig.limiter.of_tenant("chat")["concurrency"] == 1


async def test_a_limit_that_refuses_goes_before_one_that_waits(rig):
    rig.use(concurrency=(1, "wait"), requests_per_min=1)
    rig.enter()
    assert refused(rig).code == "requests_per_min"


async def test_nothing_is_left_of_a_tenant_when_it_is_deleted(rig):
    rig.use(tokens_per_day=100)
    rid = rig.enter()
    rig.limiter.use_tenants({})
    rig.end(rid)
    assert rig.limiter.take_unsaved() == {}


async def test_a_budget_of_money_reserves_what_a_request_may_cost_and_counts_what_it_did(rig):
    told = []
    rig.limiter = Limiter(clock=rig.clock, wall=rig.clock.wall, on_cost=lambda *cost: told.append(cost))
    rig.limiter.use_prices(DEAR)
    rig.use(spend_cents_per_day=100)
    first = rig.enter(size=200, most=500)
    assert rig.limiter.of_tenant("chat")["spend_cents_per_day"] == 10 + 50
    error = refused(rig, size=200, most=500) if rig.enter(size=1000, most=400) else None
    assert (error.code, error.details["limit"]["value"]) == ("spend_cents_per_day", 100)
    assert error.details["limit"] | {"used": 0, "reserved": 150, "may_use": 60} == error.details["limit"]
    rig.end(first, new=100, cached=100, output=245)
    assert told == [("chat", 30 * NANOS_PER_CENT)]
    assert rig.limiter.of_tenant("chat")["spend_cents_per_day"] == 90 + 30
    use = UseOf("chat", WHOLE_TENANT, date(2026, 1, 31))
    assert rig.limiter.take_unsaved()[use].cost_nanos == 30 * NANOS_PER_CENT


async def test_a_budget_of_money_refuses_when_the_model_has_no_price(rig):
    rig.use(spend_cents_per_month=100)
    with pytest.raises(RequestError, match="has no price") as caught:
        rig.enter()
    assert (caught.value.status, caught.value.code) == (503, "no_price")
    rig.limiter.use_prices(DEAR)
    rig.enter()


async def test_a_key_has_a_budget_of_money_of_its_own(rig):
    rig.limiter.use_prices(DEAR)
    identity = rig.identity(spend_cents_per_month=10)
    rig.end(rig.enter(identity=identity, size=0, most=100), new=0, output=100)
    assert refused(rig, identity=identity, size=0, most=1).code == "spend_cents_per_month"
    rig.enter(identity=rig.identity("key_b"))
