"""How many connections there may be: whose go when there are too many, and that the count is right."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.limits import HttpLimits, connection_budget

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Fake:
    def __init__(self, peer, connections):
        self.peer = peer
        self.is_busy = False
        self.is_open = True

    def evict(self):
        assert not self.is_busy
        self.is_open = False

    def check(self, now_s):
        pass


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from(["come", "go", "busy", "idle"]), st.integers(0, 7)), max_size=80),
)
def test_limits_hold_and_no_busy_connection_is_evicted(places, per_peer, waiting, steps):
    now_s = [0.0]
    limits = HttpLimits(max_connections=places, max_connections_per_peer=per_peer, max_waiting=waiting)
    most = places + waiting
    connections = Connections("data", limits, clock=lambda: now_s[0])
    known = []
    for step, number in steps:
        live = [each for each in known if each.is_open]
        if step == "come":
            peer = "abc"[number % 3]
            refusal = connections.admit(peer)
            left = [each for each in live if each.is_open]
            of_peer = [each for each in left if each.peer == peer]
            if refusal is None:
                known.append(Fake(peer, connections))
                connections.enter(known[-1])
            elif refusal.cause == "peer_limit":
                assert len(of_peer) == per_peer
            else:
                assert len(left) == most
                assert all(each.is_busy for each in left)
        elif live:
            now_s[0] += number
            chosen = live[number % len(live)]
            if step == "go":
                chosen.is_open = False
                connections.leave(chosen.peer, chosen)
                connections.leave(chosen.peer, chosen)  # as after an eviction: counted once
            else:
                chosen.is_busy = step == "busy"
                connections.set_waiting(chosen, waits=not chosen.is_busy)
        live = [each for each in known if each.is_open]
        assert connections.count == len(live) <= most
        if per_peer < places:
            assert max(Counter(each.peer for each in live).values(), default=0) <= per_peer


async def test_the_connection_that_waited_longest_makes_room(serve):
    server = await serve(max_connections=3)
    first, _ = await server.connect()
    second, second_writer = await server.connect()
    await server.until(lambda: server.connections.count == 2)
    for _ in range(2):
        await server.connect("127.0.0.2")
    assert await server.rest(first) == b""
    second_writer.write(GET)
    assert (await second.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")
    assert server.connections.closed == {"evicted": 1}


async def test_an_address_at_its_limit_gives_up_its_own_oldest_connection_that_waits(serve, monkeypatch):
    monkeypatch.setattr("pdmuxd.daemon.httpd.connections._FLOOD_S", 0.0)
    server = await serve(max_connections_per_peer=2)
    oldest, _ = await server.connect()
    await server.until(lambda: server.connections.count == 1)
    for _ in range(2):
        await server.connect()
    assert await server.rest(oldest) == b""
    assert server.connections.closed == {"evicted": 1}


async def test_503_when_every_connection_has_a_request(serve):
    server = await serve(max_connections=2, write_timeout_s=3600)
    for _ in range(2):
        _, writer = await server.connect()
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await server.until(lambda: len(server.app.seen) == 2)
    answer = await server.tell(b"")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"connection_limit"' in answer
    assert server.connections.closed == {"connection_limit": 1}


async def test_one_address_cannot_take_the_connections_of_others(serve):
    server = await serve(max_connections=100, max_connections_per_peer=5)
    reader, writer = await server.connect()
    await server.until(lambda: server.connections.count == 1)
    for _ in range(50):
        await server.connect("127.0.0.2")
    await server.until(lambda: server.connections.closed["peer_limit"] == 45)
    assert server.connections.count == 6
    writer.write(GET)
    assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")


async def test_connections_are_counted_when_they_come_and_go_in_crowds(serve):
    server = await serve()
    answers = await asyncio.gather(
        *(server.tell(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) for _ in range(200))
    )
    assert all(answer.endswith(b"ok 0") for answer in answers)
    await server.until(lambda: server.connections.count == 0)


@pytest.mark.parametrize(
    ("descriptors", "data", "admin", "waiting"),
    [
        (256, 64, 32, 0),
        (1024, 400, 128, 0),
        (10000, 4096, 256, 1456),
        (65536, 4096, 256, 6144),
        (100, 8, 32, 0),
    ],
)
def test_descriptors_are_kept_back_for_the_daemon_and_its_operators(descriptors, data, admin, waiting):
    budget = connection_budget(descriptors, data=4096, admin=256)
    assert (budget.data, budget.admin, budget.admin_waiting) == (data, admin, waiting)


async def test_a_sweep_lets_others_have_their_turns_when_many_connections_are_late():
    connections, at_once = Connections("data", HttpLimits()), []
    turn = 0

    class Late(Fake):
        def check(self, now_s):
            at_once.append(turn)

    async def others():
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    for _ in range(1000):
        assert connections.admit("a") is None
        connections.enter(Late("a", connections))
    other = asyncio.create_task(others())
    await connections.sweep()
    other.cancel()
    assert len(at_once) == 1000
    assert max(Counter(at_once).values()) <= 100
