"""What one client gets of the buffer: everything once and in order, or word of what it does not get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from telemetry_feeds import HandClock, Told, named, read_events

from pdmuxd.controlplane.events.buffer import EventBuffer, EventId
from pdmuxd.controlplane.events.follow import HEARTBEAT_S, LAG_S, Subscription, follow
from pdmuxd.controlplane.events.messages import EventMessage, EventType


class Said(EventMessage):
    n: int


SESSION = "1769860800000"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def buffer() -> EventBuffer:
    return EventBuffer(SESSION, max_events=100)


def publish(buffer: EventBuffer, clock: HandClock, *numbers: int, type_: EventType = "request") -> None:
    for n in numbers:
        buffer.publish(type_, Said(n=n), clock())


def subscribed(after: str | None = None, types: frozenset[EventType] | None = None) -> Subscription:
    place = None if after is None else EventId.parse(after)
    return Subscription(hello=lambda: Said(n=0), after=place, types=types)


async def take_all(stream: AsyncIterator[bytes], buffer: EventBuffer) -> list[Told]:
    """The rest of a stream, whose buffer is closed."""
    buffer.close()
    return read_events("".join([chunk.decode() async for chunk in stream]))


def numbers(events: list[Told]) -> list[int]:
    return [event.data["n"] for event in events if event.name not in ("hello", "gap", "bye")]


async def test_a_stream_begins_with_hello_and_what_comes_then_when_it_is_new(
    buffer: EventBuffer, clock: HandClock
) -> None:
    publish(buffer, clock, 1, 2)
    stream = follow(buffer, subscribed(), clock=clock)
    first = read_events((await anext(stream)).decode())
    publish(buffer, clock, 3, 4)

    events = await take_all(stream, buffer)

    assert [event.name for event in first] == ["hello"]
    assert first[0].id is None
    assert [(event.id, event.data["n"]) for event in events[:-1]] == [
        (f"{SESSION}-3", 3),
        (f"{SESSION}-4", 4),
    ]
    assert (events[-1].name, events[-1].id) == ("bye", None)


@pytest.mark.parametrize("cut", range(11))
async def test_nothing_is_lost_or_told_twice_when_a_client_resumes_anywhere(
    buffer: EventBuffer, clock: HandClock, cut: int
) -> None:
    publish(buffer, clock, *range(1, 11))
    events = await take_all(follow(buffer, subscribed(f"{SESSION}-{cut}"), clock=clock), buffer)
    assert numbers(events) == list(range(cut + 1, 11))
    assert named(events, "gap") == []


async def test_the_loss_is_counted_when_a_client_was_away_too_long(
    buffer: EventBuffer, clock: HandClock
) -> None:
    publish(buffer, clock, *range(1, 251))

    events = await take_all(follow(buffer, subscribed(f"{SESSION}-30"), clock=clock), buffer)

    (gap,) = named(events, "gap")
    assert (gap.data["reason"], gap.data["lost"]) == ("expired", 120)
    assert (gap.data["from"], gap.data["to"]) == (f"{SESSION}-31", f"{SESSION}-150")
    assert gap.id == f"{SESSION}-150"
    assert numbers(events) == list(range(151, 251))
    assert buffer.lost_events == 120


async def test_the_buffer_is_bounded_when_events_are_large(clock: HandClock) -> None:
    buffer = EventBuffer(SESSION, max_bytes=100)
    publish(buffer, clock, *range(10_000, 10_100))
    assert buffer.head - buffer.oldest + 1 == 100 // len(b'{"n":10000}')


async def test_a_restart_is_told_when_the_id_is_of_another_session(
    buffer: EventBuffer, clock: HandClock
) -> None:
    publish(buffer, clock, 1, 2)
    stream = follow(buffer, subscribed("1700000000000-77"), clock=clock)
    first = read_events((await anext(stream)).decode())
    publish(buffer, clock, 3)

    assert [event.name for event in first] == ["hello", "gap"]
    assert (first[1].data["reason"], first[1].data["lost"], first[1].id) == (
        "restarted",
        None,
        f"{SESSION}-2",
    )
    assert numbers(await take_all(stream, buffer)) == [3]


async def test_only_some_types_come_when_they_are_asked_for(buffer: EventBuffer, clock: HandClock) -> None:
    stream = follow(buffer, subscribed(f"{SESSION}-0", frozenset({"alarm"})), clock=clock)
    publish(buffer, clock, 1, 3, type_="stats")
    publish(buffer, clock, 2, type_="alarm")
    assert numbers(await take_all(stream, buffer)) == [2]


async def test_frames_are_skipped_and_counted_when_a_client_lags(
    buffer: EventBuffer, clock: HandClock
) -> None:
    stream = follow(buffer, subscribed(), clock=clock)
    await anext(stream)
    publish(buffer, clock, *range(1, 31), type_="stats")
    publish(buffer, clock, 31, type_="request")
    clock.turn(LAG_S + 1)
    publish(buffer, clock, 32, type_="stats")

    events = await take_all(stream, buffer)

    (gap,) = named(events, "gap")
    assert (gap.data["reason"], gap.data["lost"]) == ("slow", 30)
    assert numbers(events) == [31, 32]
    assert buffer.lost_events == 30


async def test_old_frames_come_when_a_client_asks_for_them_by_resuming(
    buffer: EventBuffer, clock: HandClock
) -> None:
    publish(buffer, clock, *range(1, 31), type_="stats")
    clock.turn(LAG_S + 1)
    events = await take_all(follow(buffer, subscribed(f"{SESSION}-0"), clock=clock), buffer)
    assert numbers(events) == list(range(1, 31))


async def test_a_sign_of_life_moves_the_clients_place_when_its_filter_lets_nothing_through(
    buffer: EventBuffer, clock: HandClock
) -> None:
    stream = follow(buffer, subscribed(types=frozenset({"alarm"})), clock=clock)
    await anext(stream)
    clock.turn(HEARTBEAT_S)
    publish(buffer, clock, 1, type_="stats")
    assert (await anext(stream)).decode() == f": alive\nid: {SESSION}-1\n\n"


async def test_all_clients_wake_when_something_is_published(buffer: EventBuffer, clock: HandClock) -> None:
    streams = [follow(buffer, subscribed(), clock=clock) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    assert buffer.clients == 3
    waiting = [asyncio.create_task(anext(stream)) for stream in streams]
    await asyncio.wait(waiting, timeout=0.01)
    publish(buffer, clock, 7)
    for chunk in await asyncio.gather(*waiting):
        assert numbers(read_events(chunk.decode())) == [7]
    for stream in streams:
        await stream.aclose()
    assert buffer.clients == 0


@pytest.mark.parametrize("text", ["", "7", "a-7", "7-", "-7", "7-7-7", "7-99999999999999999999", "７-７"])
def test_an_id_is_refused_when_it_is_none_of_ours(text: str) -> None:
    assert EventId.parse(text) is None
