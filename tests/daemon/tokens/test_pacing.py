"""On a busy host several steps' events are written at once, as far as an answer's target allows it."""

import asyncio
import contextlib
import json
import time

import pytest
from token_vocabulary import make_tokenizer

from pdmuxd.daemon.tokens.receiver import TokenReceiver
from pdmuxd.engine.link.token_frames import TOKEN_FRAMES_PROTOCOL, Begun, Path, TokenSender, TokenStep
from pdmuxd.engine.link.token_frames import Vocabulary as Told

WORDS = " quick brown fox jumps over the lazy dog and the quick brown fox"


def event(text):
    return f'data: {{"id":"r","choices":[{{"index":0,"text":{json.dumps(text)}}}]}}\n\n'.encode()


class Client:
    """Notes what is written to it, and when."""

    def __init__(self):
        self.writes = []

    def frame(self, events):
        return events

    def write(self, events):
        self.writes.append((time.monotonic(), events.count(b"data: ")))

    def wrote(self, at_s):
        pass

    @property
    def events(self):
        return [count for _, count in self.writes]


@contextlib.asynccontextmanager
async def answering(folder, *, steps, tbt_target_s):
    """A client of one answer, and a function that hands over the next token."""
    tokenizer = make_tokenizer(folder / "tokenizer.json")
    receiver = TokenReceiver(Path("s"), max_unsent_bytes=10**6)
    told = Told(protocol=TOKEN_FRAMES_PROTOCOL, tokenizer_path=str(Path("s").parent / "tokenizer.json"))
    sender = TokenSender(Path("s"), lambda: told)
    client, ids = Client(), iter(tokenizer.encode(WORDS * 20).ids)
    try:
        async with asyncio.timeout(60):
            while not sender.is_ready or not receiver.is_ready:
                sender.poll()
                await asyncio.sleep(0.001)
        receiver.counts.pace.steps = steps
        stream = receiver.open("r", tbt_target_s=tbt_target_s)
        first = next(ids)
        begun = [Begun(1, "r", (), (first,), True, "r")]
        sender.send(TokenStep(begun=begun, streams=[], token_ids=[], several=[]))
        await stream.feed(event(tokenizer.decode([first])))
        await stream.outbox.take()
        taking = asyncio.create_task(stream.outbox.take())
        await asyncio.sleep(0)
        stream.outbox.use_writer(client)

        def step():
            sender.send(TokenStep(begun=[], streams=[1], token_ids=[next(ids)], several=[]))
            receiver.read()

        yield client, step, receiver
        taking.cancel()
    finally:
        sender.close()
        receiver.close()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("steps", "tbt_target_s", "events"),
    [(1, 10.0, [1] * 7), (3, 10.0, [1, 3, 3]), (3, 0.0, [1] * 7), (8, 10.0, [1])],
    ids=["calm", "three at once", "no target", "eight at once"],
)
async def test_events_of_so_many_steps_are_written_at_once(tmp_path, steps, tbt_target_s, events):
    async with answering(tmp_path, steps=steps, tbt_target_s=tbt_target_s) as (client, step, receiver):
        for _ in range(7):
            step()
        assert client.events == events
        receiver.counts.pace.steps = 1
        step()
        assert sum(client.events) == 8, "nothing is held any more"


async def test_events_wait_no_longer_than_the_target_allows_when_no_step_comes(tmp_path):
    async with answering(tmp_path, steps=8, tbt_target_s=0.2) as (client, step, _):
        for _ in range(3):
            step()
        assert client.events == [1]
        await asyncio.sleep(0.3)
        assert client.events == [1, 2]
        (first_s, _), (then_s, _) = client.writes
        assert 0.15 < then_s - first_s < 1.0


async def test_events_do_not_wait_when_the_next_step_may_be_too_late_for_them(tmp_path):
    async with answering(tmp_path, steps=8, tbt_target_s=0.2) as (client, step, _):
        step()
        await asyncio.sleep(0.17)
        for _ in range(4):
            step()
        assert client.events == [1, 1, 1, 1, 1]


async def test_what_is_held_is_written_when_the_engine_goes(tmp_path):
    async with answering(tmp_path, steps=8, tbt_target_s=10.0) as (client, step, receiver):
        for _ in range(3):
            step()
        receiver._lose()
        assert client.events == [1, 2]
