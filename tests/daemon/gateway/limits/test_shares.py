"""Several nodes under one limit: together they pass it by at most one request each, and nobody starves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from limited_tenant import DEAR, record
from postgres_server import PostgresServer, find_programs
from stores import opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.limit_shares import Account
from pdmuxd.controlplane.tenants.limit_values import Limit, LimitName
from pdmuxd.controlplane.tenants.records import Identity, KeyRecord, TenantRecord
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.daemon.duties.token_use import UseKeeper
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.daemon.gateway.limits.shares import Shares
from pdmuxd.engine.core.errors import RequestError, StoreError
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.link.messages import RequestRecord

TODAY = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LIMITS: dict[LimitName, int] = {
    "requests_per_min": 60,
    "output_tokens_per_min": 5000,
    "tokens_per_day": 12_000,
    "concurrency": 20,
    "spend_cents_per_month": 900,
}


class Database:
    """The table of shares and the stored use, in memory; `is_away` as a server that is down."""

    def __init__(self) -> None:
        self.amounts: dict[tuple[str, str], dict[int, int]] = {}
        self.spent = Tokens()
        self.is_away = False
        self.questions = 0

    def of(self, node: int) -> Any:
        def ask(account: Account, wanted: int) -> int:
            self.require()
            self.questions += 1
            held = self.amounts.setdefault((account.subject, account.name), {})
            others = sum(amount for each, amount in held.items() if each != node)
            spent = self.spent.cost_nanos if account.is_money else self.spent.counted(count_cached=False)
            spent = 0 if account.first_day is None else spent
            held[node] = max(0, min(wanted, account.value - others - spent))
            return held[node]

        def renew(kept: dict[tuple[str, str], int]) -> set[tuple[str, str]]:
            self.require()
            for key, amount in kept.items():
                self.amounts[key][node] = amount
            return set()

        return SimpleNamespace(ask=ask, renew=renew, nodes=lambda: 2)

    def require(self) -> None:
        if self.is_away:
            raise StoreError("the server is down")

    def store(self, node: int, limiter: Limiter) -> None:
        unsaved = limiter.take_unsaved()
        for subject, name, amount in limiter.take_spent(unsaved):
            self.amounts[subject, name][node] -= amount
        for tokens in unsaved.values():
            self.spent = self.spent.plus(tokens)


class Node:
    """One node's limiter, and the requests that it let in."""

    def __init__(self, number: int, database: Database, now_s: list[float]) -> None:
        self.number, self.database = number, database
        self.limiter = Limiter(clock=lambda: now_s[0], wall=lambda: TODAY)
        self.limiter.shares = Shares(database.of(number), clock=lambda: now_s[0])
        self.open: dict[str, int] = {}
        self.count = 0

    async def enter(self, identity: Identity, most: int) -> bool:
        self.count += 1
        rid, need = f"n{self.number}r{self.count}", Need(input_tokens=10, output_tokens=most)
        try:
            if not self.limiter.enter_now(rid, identity, need):
                await self.limiter.enter(rid, identity, need)
        except RequestError:
            return False
        self.open[rid] = most
        return True

    def end(self, rid: str, part: float) -> RequestRecord:
        told = record(rid, new=10, output=int(self.open.pop(rid) * part))
        self.limiter.on_request(told)
        self.limiter.leave(rid, was_served=True)
        return told


def limited(**limits: int) -> Identity:
    wanted = tuple(Limit(name=name, value=value) for name, value in limits.items())  # type: ignore[arg-type]
    tenant = TenantRecord(
        name="chat", enabled=True, slo=DEFAULT_SLO, slo_version=1, max_in_flight=10_000, limits=wanted
    )
    key = KeyRecord(key_id="k1", tenant="chat", scopes=frozenset(), expires_at_s=None)
    return Identity(tenant=tenant, key=key)


def three(now_s: list[float], identity: Identity) -> tuple[Database, list[Node]]:
    database = Database()
    nodes = [Node(number, database, now_s) for number in range(3)]
    for node in nodes:
        node.limiter.use_tenants({"chat": identity.tenant})
        node.limiter.use_prices(DEAR)
    return database, nodes


@pytest.mark.parametrize("seed", range(6))
async def test_no_limit_is_passed_by_more_than_one_request_on_each_node(seed: int) -> None:
    chance, now_s, identity = random.Random(seed), [1000.0], limited(**LIMITS)
    database, nodes = three(now_s, identity)
    largest, let_in, used = 600, [], []
    for _ in range(400):
        node = chance.choice(nodes)
        match chance.randrange(5):
            case 0:
                now_s[0] += chance.choice([0.1, 1.0, 11.0])
                for each in nodes:
                    assert each.limiter.shares is not None
                    await each.limiter.shares.renew()
            case 1:
                database.store(node.number, node.limiter)
            case 2:
                for rid in list(node.open)[: chance.randrange(8)]:
                    told = node.end(rid, chance.choice([0.0, 0.5, 1.0]))
                    used.append((now_s[0], told.output_tokens))
            case _:
                asked = [chance.choice([1, 50, largest]) for _ in range(chance.randrange(30))]
                let_in += [now_s[0] for most in asked if await node.enter(identity, most)]
        window_s = now_s[0] - 59.0
        assert sum(at_s > window_s for at_s in let_in) <= LIMITS["requests_per_min"]
        assert sum(len(each.open) for each in nodes) <= LIMITS["concurrency"] + len(nodes)
        in_window = sum(tokens for at_s, tokens in used if at_s > window_s)
        assert in_window <= LIMITS["output_tokens_per_min"] + len(nodes) * largest
        in_all = sum(tokens for _, tokens in used) + 10 * len(used)
        assert in_all <= LIMITS["tokens_per_day"] + len(nodes) * (largest + 10)
        in_cents = sum(tokens for _, tokens in used) / 10 + 10 * len(used) / 20
        assert in_cents <= LIMITS["spend_cents_per_month"] + len(nodes) * (largest / 10 + 1)
    assert let_in


async def test_a_share_is_not_given_while_what_was_spent_of_it_is_being_stored() -> None:
    """Else it is larger here than in the database by what was spent, and the limit is passed by that."""
    identity = limited(tokens_per_day=6000)
    database, (node, _, _) = three([1000.0], identity)
    shares = node.limiter.shares
    assert shares is not None
    assert await node.enter(identity, 600)
    node.end(next(iter(node.open)), 1.0)
    assert await node.enter(identity, 5000), "the one that may pass the limit"
    async with shares.turn:
        spent = node.limiter.take_spent(node.limiter.take_unsaved())
        entering = asyncio.create_task(node.enter(identity, 1000))
        await asyncio.sleep(0.05)
        assert not entering.done()
        for subject, name, amount in spent:
            database.amounts[subject, name][node.number] -= amount
        database.spent = Tokens(input_tokens=10, output_tokens=600)
    assert await entering
    (held,) = database.amounts.values()
    assert held[node.number] + 610 <= 6000


async def test_one_busy_node_gets_all_of_a_limit_when_the_others_are_idle() -> None:
    identity = limited(requests_per_min=60)
    database, (busy, _, _) = three([1000.0], identity)
    assert [await busy.enter(identity, 1) for _ in range(61)] == [True] * 60 + [False]
    assert database.questions <= 20, "a share is enough for several"


async def test_what_a_node_no_longer_needs_is_the_others() -> None:
    now_s, identity = [1000.0], limited(requests_per_min=60)
    _, (one, other, _) = three(now_s, identity)
    assert all([await one.enter(identity, 1) for _ in range(60)])
    assert not await other.enter(identity, 1)
    now_s[0] += 61
    assert one.limiter.shares is not None
    await one.limiter.shares.renew()
    assert await other.enter(identity, 1)


async def test_a_flood_that_is_refused_is_no_flood_of_questions() -> None:
    identity = limited(requests_per_min=60)
    database, (node, _, _) = three([1000.0], identity)
    for _ in range(60):
        await node.enter(identity, 1)
    before = database.questions
    assert not any([await node.enter(identity, 1) for _ in range(500)])
    assert database.questions <= before + 1


async def test_a_node_that_is_cut_off_goes_on_with_its_share_and_then_with_an_equal_part() -> None:
    now_s, identity = [1000.0], limited(requests_per_min=60)
    database, (node, other, _) = three(now_s, identity)
    assert await node.enter(identity, 1)
    assert node.limiter.shares is not None
    await node.limiter.shares.renew()
    database.is_away = True
    assert await node.enter(identity, 1), "within its share"
    now_s[0] += 100
    with suppress(StoreError):
        await node.limiter.shares.renew()
    assert sum([await node.enter(identity, 1) for _ in range(60)]) == 30, "of two nodes"
    assert await other.enter(identity, 1), "a node that never had a share takes its part as well"


PROGRAMS = find_programs()


@pytest.fixture
def planes() -> Iterator[list[ControlPlane]]:
    assert PROGRAMS is not None
    with ExitStack() as stack:
        server = PostgresServer(PROGRAMS)
        stack.callback(server.close)
        url = server.new_database()
        yield [stack.enter_context(opened(url)) for _ in range(2)]


@pytest.mark.slow
@pytest.mark.skipif(PROGRAMS is None, reason="needs PostgreSQL: apt-get install postgresql")
async def test_two_nodes_stay_within_a_budget_on_postgresql(planes: list[ControlPlane]) -> None:
    one = planes[0]
    one.create_tenant("chat")
    secret = one.keys.issue("chat").secret
    one.limits.change_tenant("chat", {"tokens_per_day": Limit(name="tokens_per_day", value=6000)})
    served = 0
    keepers, limiters = [], []
    for plane in planes:
        plane.refresh()
        limiter = Limiter(wall=plane.store.clock)
        limiter.use_tenants(plane.directory.tenants)
        limiters.append(limiter)
        keepers.append(UseKeeper(limiter, plane))
        plane.store.beat()
    for turn in range(40):
        for node, (plane, limiter, keeper) in enumerate(zip(planes, limiters, keepers, strict=True)):
            identity = plane.directory.authenticate(secret, scope="serve")
            entered = []
            for number in range(3):
                rid = f"n{node}t{turn}r{number}"
                with suppress(RequestError):
                    need = Need(input_tokens=10, output_tokens=500)
                    if not limiter.enter_now(rid, identity, need):
                        await limiter.enter(rid, identity, need)
                    entered.append(rid)
            for rid in entered:
                limiter.on_request(record(rid, new=10, output=500))
                limiter.leave(rid, was_served=True)
                served += 510
            await keeper.store()
        if turn % 10 == 9:
            await asyncio.sleep(0.6)  # so that a refused share is asked for again
            for keeper in keepers:
                await keeper.renew_shares()
    use = UseOf("chat", WHOLE_TENANT, one.store.clock().date())
    stored = one.limits.use_since(use.day)[use]
    assert stored.counted(count_cached=False) == served
    assert 5000 < served <= 6000 + 2 * 510
    for keeper in keepers:
        await keeper.give_back_shares()
    assert Tokens() != stored
