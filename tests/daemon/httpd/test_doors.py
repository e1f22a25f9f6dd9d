"""Wrong keys: what one too many costs its own connection, and no other."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.httpd import connections
from pdmuxd.daemon.httpd.doors import Door, Shown, secret_in
from pdmuxd.daemon.httpd.peers import AuthFailures
from pdmuxd.daemon.httpd.pools import Pool
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers

GOOD, WRONG, OPEN = "good", "wrong", "/healthz"


def get(key=None, path="/"):
    lines = [f"GET {path} HTTP/1.1", "Host: x", *([f"Authorization: Bearer {key}"] if key else []), "", ""]
    return "\r\n".join(lines).encode()


def door(*, most=0, trusted=""):
    """`most` wrong keys of an address are let through to the application, which counts them."""
    return Door(
        AuthFailures(most, lambda: 0.0),
        lambda secret: secret == GOOD,
        open_paths=frozenset({OPEN.encode()}),
        is_trusted=TrustedPeers(trusted).has,
    )


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([(b"authorization", b"Bearer good")], "good"),
        ([(b"authorization", b"bearer  good ")], "good"),
        ([(b"x-api-key", b"good")], "good"),
        ([(b"authorization", b"Basic YW55Omdvb2Q=")], "good"),
        ([(b"authorization", b"Basic !")], None),
        ([(b"authorization", b"Bearer ")], None),
        ([(b"authorization", b"Digest good")], None),
        ([(b"authorization", b"Digest x"), (b"x-api-key", b"good")], None),
        ([], None),
    ],
)
def test_a_key_is_found_in_every_form_that_the_planes_take(headers, secret):
    assert secret_in(headers) == secret


def test_only_an_address_that_sent_too_many_wrong_keys_is_refused():
    failures = AuthFailures(2, lambda: 0.0)
    at = Door(failures, lambda secret: secret == GOOD, open_paths=frozenset({b"/healthz"}))
    wrong, good = [(b"x-api-key", b"wrong")], [(b"x-api-key", b"good")]
    assert at.look("a", b"/", wrong) is Shown.NOTHING
    for _ in range(2):
        failures.count("a")
    assert at.look("a", b"/", wrong) is Shown.TOO_MANY
    assert at.look("a", b"/", []) is Shown.TOO_MANY
    assert at.look("a", b"/healthz", []) is Shown.NOTHING
    assert at.look("a", b"/", good) is Shown.GOOD_KEY
    assert at.look("b", b"/", wrong) is Shown.NOTHING
    assert failures.total == 4, "what is refused here is counted too"


async def test_a_wrong_key_too_many_never_reaches_the_application(serve, monkeypatch):
    monkeypatch.setattr(connections, "THROTTLED_DELAY_S", 0.0)
    server = await serve(door=door())
    answer = await server.tell(get(WRONG))
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 60" in answer
    assert b'"code":"too_many_auth_failures"' in answer
    assert server.app.seen == []
    reader, writer = await server.connect()
    writer.write(get(GOOD))
    assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")


async def test_a_good_key_is_served_when_wrong_ones_hold_all_places_of_its_address(serve):
    server = await serve(door=door(), max_connections_per_peer=3, max_connections=100)
    for _ in range(3):
        _, writer = await server.connect()
        writer.write(get(WRONG))
    await server.until(lambda: server.connections.closed["too_many_auth_failures"] == 3)
    reader, writer = await server.connect()
    writer.write(get(GOOD))
    assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")
    assert server.connections.closed["evicted"] == 1


async def test_connections_with_a_good_key_do_not_go_for_others_of_their_address(serve):
    server = await serve(door=door(most=100), max_connections_per_peer=2, max_connections=100)
    kept = []
    for _ in range(2):
        reader, writer = await server.connect()
        writer.write(get(GOOD))
        await reader.readuntil(b"ok 0")
        kept.append((reader, writer))
    for _ in range(20):
        await server.connect()  # says nothing
    await server.until(lambda: sum(server.connections.closed.values()) == 18)
    for reader, writer in kept:
        writer.write(get(GOOD))
        assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")


async def test_the_address_that_has_most_connections_makes_room(serve):
    server = await serve(door=door(most=100), max_connections=10)
    lone, lone_writer = await server.connect("127.0.0.3")
    await server.until(lambda: server.connections.count == 1)
    for _ in range(40):
        await server.connect("127.0.0.2")
    await server.until(lambda: server.connections.closed["evicted"] == 31)
    lone_writer.write(get())
    assert (await lone.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")


async def test_the_connections_of_a_trusted_proxy_are_not_refused_for_one_client(serve):
    server = await serve(door=door(trusted="127.0.0.9"), max_connections_per_peer=2, max_connections=100)
    held = [await server.connect("127.0.0.9") for _ in range(10)]
    for reader, writer in held:
        writer.write(get(WRONG))
        assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 "), "the application answers it"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", b"203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", b"198.51.100.1, 203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", b"203.0.113.5, 10.0.0.2", "203.0.113.5"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("192.0.2.1", b"203.0.113.5", "192.0.2.1"),
    ],
)
def test_a_trusted_proxys_header_names_the_client(peer, forwarded, client):
    scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", forwarded)]}
    assert TrustedPeers("10.0.0.0/8").client_of(scope) == client


class Held:
    def __init__(self, peer):
        self.peer = peer


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=120))
def test_a_pool_names_the_oldest_of_the_address_that_has_most(steps):
    pool, known = Pool(), []
    for at, (comes, number) in enumerate(steps):
        if comes or not known:
            known.append(Held("abcd"[number % 4]))
            pool.add(known[-1], float(at))
        else:
            pool.discard(known.pop(number % len(known)))
        counts = {peer: sum(each.peer == peer for each in known) for peer in "abcd"}
        found = pool.oldest()
        assert (found is None) == (not known)
        if found is not None:
            assert counts[found[0].peer] == max(counts.values())
            assert found[0] is next(each for each in known if each.peer == found[0].peer)
        assert sorted(map(id, pool)) == sorted(map(id, known))


async def test_the_answer_to_a_wrong_key_too_many_is_held_back(serve, monkeypatch):
    monkeypatch.setattr(connections, "THROTTLED_DELAY_S", 3600.0)
    server = await serve(door=door())
    reader, writer = await server.connect()
    writer.write(get(WRONG))
    await server.until(lambda: server.connections.closed["too_many_auth_failures"] == 1)
    reading = asyncio.create_task(reader.read())
    await asyncio.sleep(0)
    assert not reading.done()
    reading.cancel()
