"""Who was there when engines died: held back the third time, and nobody else."""

import asyncio
from collections import Counter

import pytest

from pdmuxd.daemon.gateway.quarantine import FIRST_STEPS_S, LEFT_S, Quarantine
from pdmuxd.engine.core.errors import RequestError


class Engines:
    """A quarantine with a clock that the test moves, and engines that die."""

    def __init__(self, hold_s=600.0):
        self.now_s = 1000.0
        self.quarantine = Quarantine(hold_s, lambda: self.now_s)

    def die(self, *bodies, begun_ago_s=None, is_planned=False):
        """An engine that has these, each a tenant and a text."""
        engine = object()
        if is_planned:
            self.quarantine.engine_ended(engine)
        for number, (tenant, text) in enumerate(bodies):
            rid = f"rid-{number}-{self.now_s}"
            begun_s = None if begun_ago_s is None else self.now_s - begun_ago_s
            payload = f'{{"prompt":"{text}","rid":"{rid}"}}'.encode()
            self.quarantine.in_flight(engine, tenant=tenant, payload=payload, rid=rid, begun_s=begun_s)
        if not is_planned:
            self.quarantine.engine_died(engine)
        self.now_s += 60
        return engine

    def is_held(self, tenant, text):
        payload = f'{{"prompt":"{text}","rid":"new"}}'.encode()
        try:
            self.quarantine.check(tenant=tenant, payload=payload, rid="new")
        except RequestError as error:
            return error.code == "quarantined"
        return False


BAD, GOOD, OTHER = ("mallory", "bad"), ("alice", "good"), ("alice", "other")


def test_a_body_is_held_after_two_deaths_whatever_its_id():
    engines = Engines()
    engines.die(BAD, GOOD)
    assert not engines.is_held(*BAD)
    engines.die(BAD, OTHER)
    assert engines.is_held(*BAD)
    assert not engines.is_held("mallory", "something else")
    assert not engines.is_held(*GOOD)
    assert not engines.is_held("bob", "bad"), "another tenant's, which was never there"


def test_a_tenant_is_held_when_its_requests_alone_were_there_twice():
    engines = Engines()
    engines.die(("mallory", "one"), ("mallory", "two"))
    engines.die(("mallory", "three"))
    assert engines.is_held("mallory", "four")
    assert not engines.is_held(*GOOD)


def test_no_tenant_is_held_when_all_were_there():
    engines = Engines()
    for number in range(5):
        engines.die(("mallory", f"a{number}"), ("alice", f"b{number}"))
    assert not engines.is_held("mallory", "new")
    assert not engines.is_held("alice", "new")


def test_answers_that_go_on_for_long_are_not_suspected_beside_one_that_begins():
    engines = Engines()
    for _ in range(2):
        engine = engines.die(GOOD, begun_ago_s=FIRST_STEPS_S + 1)
        engines.now_s -= 60
        engines.quarantine.in_flight(engine, tenant="mallory", payload=b"bad", rid="r", begun_s=None)
        engines.now_s += 60
    assert not engines.is_held(*GOOD)
    with pytest.raises(RequestError):
        engines.quarantine.check(tenant="mallory", payload=b"bad", rid="r")


def test_long_answers_are_suspected_when_nothing_else_was_there():
    engines = Engines()
    for _ in range(2):
        engines.die(GOOD, begun_ago_s=100)
    assert engines.is_held(*GOOD)


def test_a_client_that_leaves_is_suspected_all_the_same():
    engines = Engines()
    for ago_s in (1, LEFT_S - 1):
        engine = object()
        engines.quarantine.client_left(engine, tenant="mallory", payload=b"bad", rid="r")
        engines.now_s += ago_s
        engines.quarantine.engine_died(engine)
    with pytest.raises(RequestError, match="two engines"):
        engines.quarantine.check(tenant="mallory", payload=b"bad", rid="r")


def test_a_client_that_left_long_before_is_not_suspected():
    engines = Engines()
    for _ in range(2):
        engine = object()
        engines.quarantine.client_left(engine, tenant="alice", payload=b"x", rid="r")
        engines.now_s += LEFT_S + 1
        engines.quarantine.engine_died(engine)
    engines.quarantine.check(tenant="alice", payload=b"x", rid="r")


def test_nobody_is_held_for_what_an_operator_ended():
    engines = Engines()
    for _ in range(3):
        engines.die(BAD, is_planned=True)
    assert not engines.is_held(*BAD)


def test_all_are_released_with_time_or_by_the_setting():
    engines = Engines(hold_s=300)
    for _ in range(2):
        engines.die(BAD)
    assert engines.is_held(*BAD)
    engines.now_s += 300
    assert not engines.is_held(*BAD)
    for _ in range(2):
        engines.die(BAD)
    assert engines.is_held(*BAD)
    engines.quarantine.hold_s = 0.0
    assert not engines.is_held(*BAD)


@pytest.mark.parametrize("deaths", [2, 3])
@pytest.mark.parametrize("asked", ["bad", "something else"])
def test_what_is_held_is_released_when_the_listed_time_is_over(deaths, asked):
    engines = Engines()
    for _ in range(deaths):
        engines.die(BAD)
    left_s = {held.left_s for held in engines.quarantine.held()}
    assert left_s == {600.0 - 2 * 60}, "two of them are then no longer counted together"
    with pytest.raises(RequestError, match="for 480 s"):
        engines.quarantine.check(tenant="mallory", payload=asked.encode(), rid="new")
    engines.now_s += left_s.pop() - 1
    assert engines.is_held("mallory", asked)
    engines.now_s += 2
    assert not engines.is_held("mallory", asked)
    assert engines.quarantine.held() == []


async def lost(setup, prompt):
    """The engine dies with this request in flight, and the next one serves."""
    setup.engine.die()
    async with setup.post(prompt=prompt) as answer:
        assert answer.status == 502
    setup.gateway.lose_engine("down")
    setup.gateway.use_engine(setup.address)


async def test_a_poisoned_request_ends_two_engines_and_no_third(setup):
    for _ in range(2):
        await lost(setup, "poison")
        await setup.engine.seen.get()
    async with setup.post(prompt="poison") as answer:
        assert answer.status == 403
        error = (await answer.json())["error"]
    assert (error["code"], error["type"]) == ("quarantined", "permission_error")
    assert setup.engine.seen.empty()
    assert 'pdmuxd_refusals_total{cause="quarantined",tenant="alice"} 1.0' in (
        setup.metrics.render().decode()
    )
    setup.engine.say(b"{}")
    async with setup.post(key="pdm_bob", prompt="poison") as answer:
        assert answer.status == 200
    async with asyncio.timeout(30):
        await setup.gateway.admission.wait_idle()


async def die_with(setup, *prompts):
    """The engine ends while it has these, each of a key and a text, and the next one serves."""
    asked = [asyncio.create_task(setup.post(key=key, prompt=prompt).__aenter__()) for key, prompt in prompts]
    for _ in asked:
        await setup.engine.seen.get()
    for _ in asked:
        setup.engine.die()
    setup.gateway.lose_engine("down")
    await asyncio.sleep(0)
    setup.gateway.use_engine(setup.address)
    return asked


POISON, BESIDE = ("pdm_alice", "poison"), ("pdm_bob", "good")


async def test_others_are_served_by_the_next_engine_when_it_is_known_what_ended_two(setup):
    setup.use_times(wait_s=30.0)
    first, beside = await die_with(setup, POISON, BESIDE)
    assert ((await first).status, (await beside).status) == (502, 502), "it may have been either"
    second, beside = await die_with(setup, POISON, ("pdm_bob", "better"))
    assert (await second).status == 502
    assert (await setup.engine.seen.get())["prompt"] == "better"
    setup.engine.say(b'{"served": true}')
    assert await (await beside).json() == {"served": True}
    async with setup.post(key=POISON[0], prompt=POISON[1]) as answer:
        assert answer.status == 403
    async with asyncio.timeout(30):
        await setup.gateway.admission.wait_idle()
    assert setup.engine.seen.empty()


async def test_nobody_is_sent_on_when_both_were_there_twice(setup):
    setup.use_times(wait_s=30.0)
    for _ in range(2):
        for answer in await die_with(setup, POISON, BESIDE):
            assert (await answer).status == 502
    assert setup.engine.seen.empty()


async def test_a_restart_that_an_operator_asked_for_holds_nobody(setup):
    for _ in range(3):
        task = asyncio.create_task(setup.post(prompt="x").__aenter__())
        await setup.engine.seen.get()
        setup.gateway.refuse_new()
        setup.gateway.lose_engine("down")
        assert (await task).status == 502
        setup.gateway.use_engine(setup.address)
        setup.gateway.accept_new()
    setup.engine.say(b"{}")
    async with setup.post(prompt="x") as answer:
        assert answer.status == 200


def test_what_is_held_is_listed_with_its_requests_and_released_by_tenant():
    engines = Engines()
    engines.die(BAD, GOOD)
    assert engines.quarantine.held() == []
    engines.die(BAD, OTHER)
    (held,) = engines.quarantine.held()
    assert (held.tenant, len(held.request_ids)) == ("mallory", 2)
    assert held.body
    assert engines.quarantine.release("alice") == 0
    assert engines.is_held(*BAD)
    assert engines.quarantine.release("mallory") == 1
    assert not engines.is_held(*BAD)
    assert engines.quarantine.held() == []


def as_counted(quarantine):
    return Counter(held.tenant for held in quarantine.held())


def test_as_many_are_counted_by_tenant_as_are_listed():
    engines = Engines()
    quarantine = engines.quarantine
    for bodies in ([BAD, GOOD], [BAD, GOOD, OTHER], [BAD], [BAD]):
        assert quarantine.held_by_tenant() == as_counted(quarantine)
        engines.die(*bodies)
    assert quarantine.held_by_tenant() == as_counted(quarantine) == {"mallory": 2, "alice": 1}
    quarantine.release("mallory")
    assert quarantine.held_by_tenant() == as_counted(quarantine) == {"alice": 1}
    engines.now_s += 600 - 4 * 60 + 1
    assert quarantine.held_by_tenant() == as_counted(quarantine) == {}
    engines.die(BAD)
    engines.die(BAD)
    quarantine.hold_s = 0.0
    assert quarantine.held_by_tenant() == {}


def test_releasing_one_tenant_leaves_no_other_alone_with_two_deaths():
    engines = Engines()
    engines.die(BAD, GOOD)
    engines.die(BAD, OTHER)
    engines.quarantine.release("mallory")
    assert not engines.is_held("alice", "new")
    assert engines.quarantine.held() == []


def test_a_tenant_that_is_held_is_listed_as_a_whole_and_all_are_released_at_once():
    engines = Engines()
    engines.die(("mallory", "one"), ("mallory", "two"))
    engines.die(("mallory", "three"))
    (held,) = engines.quarantine.held()
    assert (held.tenant, held.body, len(held.request_ids)) == ("mallory", None, 3)
    assert engines.quarantine.release() == 1
    assert not engines.is_held("mallory", "four")
