"""Parts reach the client once and in order, whether the writing task or somebody past it writes them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.tokens.outbox import Outbox, deliver


class Client:
    """A task that writes what it takes, and a writer past it; `reads` says whether that may write."""

    def __init__(self):
        self.outbox = Outbox()
        self.got = []
        self.past = 0
        self.reads = True
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.written_at_s = []
        self.outbox.use_writer(self)
        self.task = asyncio.create_task(self.run())

    def frame(self, events):
        return b"<%b>" % events if self.reads else None

    def write(self, framed):
        assert framed[:1] + framed[-1:] == b"<>"
        self.got.append(framed[1:-1])
        self.past += 1

    def wrote(self, at_s):
        self.written_at_s.append(at_s)

    async def run(self):
        while data := await self.outbox.take():
            await self.may_go_on.wait()
            self.got.append(data)

    def say(self, *parts):
        for part in parts:
            self.outbox.put(part)
        deliver((self.outbox,))


async def settle():
    for _ in range(4):
        await asyncio.sleep(0)


async def test_what_comes_at_once_is_one_write_past_the_waiting_task():
    client = Client()
    await settle()
    client.say(b"a", b"b")
    assert client.got == [b"ab"]
    assert client.outbox.held_bytes == 0
    client.outbox.close()
    await client.task


async def test_several_clients_are_each_written_to_and_told_when_in_their_order():
    clients = [Client() for _ in range(3)]
    await settle()
    clients[1].reads = False
    for client in clients:
        client.outbox.put(b"a")
    deliver([client.outbox for client in clients])
    assert [client.got for client in clients] == [[b"a"], [], [b"a"]]
    await settle()
    assert clients[1].got == [b"a"]
    assert [len(client.written_at_s) for client in clients] == [1, 0, 1]
    assert clients[0].written_at_s <= clients[2].written_at_s
    for client in clients:
        client.outbox.close()
        await client.task


async def test_only_the_first_of_several_parts_says_that_there_is_something_new():
    outbox = Outbox()
    assert [outbox.put(b"a"), outbox.put(b"b")] == [True, False]


async def test_nothing_overtakes_what_the_task_is_writing():
    client = Client()
    await settle()
    client.reads = False
    client.may_go_on.clear()
    client.say(b"a")
    await settle()
    client.reads = True
    client.say(b"b")
    assert client.got == []
    client.may_go_on.set()
    await settle()
    client.say(b"c")
    assert client.got == [b"a", b"b", b"c"]
    assert client.past == 1
    client.outbox.close()
    await client.task


async def test_the_failure_is_told_behind_what_was_there():
    outbox = Outbox()
    outbox.put(b"a")
    outbox.close(ConnectionResetError())
    assert await outbox.take() == b"a"
    with pytest.raises(ConnectionResetError):
        await outbox.take()


@given(st.lists(st.sampled_from(["say", "two", "stop", "go", "block", "free", "turn"]), max_size=40))
def test_every_part_comes_once_and_in_order(moves):
    async def run():
        client, said = Client(), []
        for number, move in enumerate(moves):
            if move in ("say", "two"):
                parts = [b"%d;" % number, b"%d,;" % number][: 1 + (move == "two")]
                said += parts
                client.say(*parts)
            elif move in ("stop", "go"):
                client.reads = move == "go"
            elif move == "block":
                client.may_go_on.clear()
            elif move == "free":
                client.may_go_on.set()
            else:
                await settle()
        client.may_go_on.set()
        client.outbox.close()
        await client.task
        assert b"".join(client.got) == b"".join(said)
        assert client.outbox.held_bytes == 0

    asyncio.run(run())
