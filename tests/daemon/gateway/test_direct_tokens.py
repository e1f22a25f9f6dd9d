"""Tokens of a scripted scheduler beside a scripted front end, through the gateway to a client."""

import asyncio
import contextlib
import gc
import json
from dataclasses import dataclass, replace

import msgspec
import pytest
from token_vocabulary import make_tokenizer
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from pdmuxd.daemon.gateway.exchange import Exchange
from pdmuxd.daemon.gateway.requests import TOKENS_PARAM
from pdmuxd.daemon.tokens.counts import FallbackCause
from pdmuxd.daemon.tokens.forms import Shape
from pdmuxd.daemon.tokens.merge import MergedStream
from pdmuxd.daemon.tokens.plain import PLAIN, Direct
from pdmuxd.daemon.tokens.receiver import TokenReceiver, open_receiver
from pdmuxd.engine.link.token_frames import Begun, Path, TokenSender, TokenStep, Vocabulary

WAIT_S = 60


def completion(text, finish=None):
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "r", "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


@dataclass
class Scheduler:
    """The other end of the receiver."""

    sender: TokenSender
    tokenizer: object
    stream: int = 0

    def ids(self, text):
        return self.tokenizer.encode(text).ids

    def begin(self, rid, text):
        self.stream = self.sender.next_stream()
        begun = Begun(
            stream=self.stream,
            request_id=rid,
            context=(),
            token_ids=tuple(self.ids(text)),
            skip_special_tokens=True,
        )
        assert self.sender.send(TokenStep(begun=[begun], streams=[], token_ids=[], several=[]))

    def say(self, text):
        several = [(self.stream, self.ids(text))]
        assert self.sender.send(TokenStep(begun=[], streams=[], token_ids=[], several=several))


@contextlib.asynccontextmanager
async def receiving(path, **changes):
    tokenizer = make_tokenizer(path.with_suffix(".json"))
    vocabulary = Vocabulary(**{"protocol": 2, "tokenizer_path": str(path.with_suffix(".json"))} | changes)
    receiver = TokenReceiver(path, max_unsent_bytes=20_000)
    sender = TokenSender(path, lambda: vocabulary)
    try:
        yield receiver, Scheduler(sender, tokenizer)
    finally:
        sender.close()
        receiver.close()


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)


async def make_ready(scheduler):
    scheduler.sender.poll()

    def is_ready():
        scheduler.sender.poll()
        return scheduler.sender.is_ready

    await until(is_ready)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path("tokens")


@pytest.fixture
async def direct(setup, path):
    async with receiving(path) as (receiver, scheduler):
        await make_ready(scheduler)
        setup.gateway.use_engine(replace(setup.address, tokens=receiver))
        yield receiver, scheduler


async def begin(setup, scheduler, **fields):
    """A stream whose first token has come from the front end."""
    asking = asyncio.create_task(setup.post(stream=True, **fields).__aenter__())
    body = await setup.engine.seen.get()
    assert body["custom_params"] == {"pdmuxd_tenant": "alice", TOKENS_PARAM: body["rid"]}
    scheduler.begin(body["rid"], "the")
    setup.engine.say(completion("the"))
    response = await asking
    assert await response.content.readuntil(b"\n\n") == completion("the")
    return response, body["rid"]


async def test_tokens_are_with_the_client_before_the_front_end_says_them(setup, direct):
    receiver, scheduler = direct
    response, _ = await begin(setup, scheduler)
    for word in (" quick", " brown", " 🦊"):
        scheduler.say(word)
        assert await response.content.readuntil(b"\n\n") == completion(word).replace(
            b"\\ud83e\\udd8a", "🦊".encode()
        )
    setup.engine.say(completion(" quick brown 🦊 jumps", finish="stop"), DONE)
    setup.engine.end()
    assert await response.content.read() == completion(" jumps", finish="stop") + DONE
    assert receiver.mismatches == 0
    assert receiver.counts.tokens >= 3
    assert not receiver.counts.fallbacks.total()
    await until(lambda: 'pdmuxd_streams_total{token_path="direct"} 1.0' in setup.metrics.render().decode())


@pytest.fixture
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def of_requests():
    """What an answer is made with, and is of no use after it."""
    kinds = (RequestResponseCycle, Exchange, MergedStream)
    return [thing for thing in gc.get_objects() if type(thing) in kinds]


@pytest.mark.slow
@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("leaves", [False, True], ids=["whole", "left"])
async def test_nothing_is_left_for_the_garbage_collector_when_a_stream_has_ended(setup, direct, leaves):
    _, scheduler = direct
    response, _ = await begin(setup, scheduler)
    scheduler.say(" quick")
    assert await response.content.readuntil(b"\n\n") == completion(" quick")
    assert of_requests()
    if not leaves:
        setup.engine.say(completion(" quick fox", finish="stop"), DONE)
        setup.engine.end()
        assert await response.content.read() == completion(" fox", finish="stop") + DONE
    response.close()
    await setup.client.close()
    await until(lambda: not of_requests())


async def test_the_text_is_whole_when_a_step_is_lost(setup, direct):
    receiver, scheduler = direct
    response, _ = await begin(setup, scheduler)
    scheduler.say(" quick")
    assert await response.content.readuntil(b"\n\n") == completion(" quick")
    scheduler.sender._steps += 2  # as if two had not been taken
    scheduler.say(" fox")
    await until(lambda: receiver.counts.lost_steps)
    assert receiver.counts.lost_steps == 2
    assert receiver.counts.fallbacks[FallbackCause.LOST] == 1
    setup.engine.say(completion(" quick brown fox", finish="stop"), DONE)
    setup.engine.end()
    assert await response.content.read() == completion(" brown fox", finish="stop") + DONE
    again, _ = await begin(setup, scheduler)
    scheduler.say(" quick")
    assert await again.content.readuntil(b"\n\n") == completion(" quick")
    again.close()


async def test_tokens_of_an_engine_that_does_not_number_its_steps_are_used(setup, direct):
    receiver, scheduler = direct
    response, _ = await begin(setup, scheduler)
    for word in (b" quick", b" brown"):
        several = [[scheduler.stream, scheduler.ids(word.decode())]]
        scheduler.sender._socket.send(msgspec.msgpack.encode(["step", [], [], [], several]))
        assert await response.content.readuntil(b"\n\n") == completion(word.decode())
    assert not receiver.counts.lost_steps
    response.close()


async def test_what_waits_for_a_client_is_counted_while_it_waits(setup, direct):
    receiver, scheduler = direct
    deaf, _ = await begin(setup, scheduler)
    word = " " + 400 * "the quick brown fox "

    def is_held():
        scheduler.say(word)
        return receiver.counts.held_bytes

    await until(is_held)
    deaf.close()
    await until(lambda: not receiver.open_streams)
    assert receiver.counts.held_bytes == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 1},
        {"echo": True},
        {"return_token_ids": True},
        {"stream_options": {"an_option_of_tomorrow": True}},
    ],
)
async def test_the_front_end_is_asked_alone_when_an_answer_is_more_than_text(setup, direct, fields):
    asking = asyncio.create_task(setup.post(stream=True, **fields).__aenter__())
    body = await setup.engine.seen.get()
    assert TOKENS_PARAM not in body["custom_params"]
    setup.engine.say(completion("a"))
    setup.engine.end()
    assert await (await asking).content.read() == completion("a")


async def test_a_client_cannot_ask_the_scheduler_by_itself(setup):
    asking = asyncio.create_task(setup.post(stream=True, custom_params={TOKENS_PARAM: True}).__aenter__())
    assert (await setup.engine.seen.get())["custom_params"] == {"pdmuxd_tenant": "alice"}
    setup.engine.end()
    await asking


async def test_the_engine_is_told_when_a_client_leaves_in_mid_stream(setup, direct):
    receiver, scheduler = direct
    response, rid = await begin(setup, scheduler)
    scheduler.say(" quick")
    response.close()
    async with asyncio.timeout(WAIT_S):
        assert await setup.engine.aborts.get() == rid
        await setup.gateway.admission.wait_idle()
    assert receiver.open_streams == 0
    scheduler.say(" brown")  # of nobody's stream


@pytest.mark.parametrize(("last", "early"), [(DONE, 0), (b"", 1)], ids=["done", "not done"])
async def test_an_answer_is_complete_when_the_client_leaves_with_its_last_event(
    setup, direct, seen_leaving, last, early
):
    _, scheduler = direct
    response, _ = await begin(setup, scheduler)
    end = completion("the fox", finish="stop") + last
    setup.engine.say(end)
    assert await response.content.readuntil(last or b"\n\n") == end
    response.close()
    async with asyncio.timeout(WAIT_S):
        await seen_leaving.wait()
        setup.engine.end()
        await setup.gateway.admission.wait_idle()
    aborts = f'pdmuxd_gateway_aborts_total{{cause="client_disconnected"}} {early:.1f}'
    assert aborts in setup.metrics.render().decode()


async def test_a_client_is_told_when_the_engine_is_lost_in_mid_stream(setup, direct):
    _, scheduler = direct
    response, _ = await begin(setup, scheduler)
    scheduler.say(" quick")
    assert await response.content.readuntil(b"\n\n") == completion(" quick")
    setup.engine.die()
    assert b'"engine_lost"' in await response.content.read()


async def test_the_text_is_whole_when_the_scheduler_falls_silent(setup, direct):
    receiver, scheduler = direct
    response, _ = await begin(setup, scheduler)
    scheduler.say(" quick")
    assert await response.content.readuntil(b"\n\n") == completion(" quick")
    scheduler.sender.close()
    await until(lambda: not receiver.is_ready)
    assert receiver.counts.fallbacks[FallbackCause.DISCONNECTED] == 1
    setup.engine.say(completion(" quick brown"))
    assert await response.content.readuntil(b"\n\n") == completion(" brown")
    setup.engine.say(completion(" fox", finish="stop"), DONE)
    setup.engine.end()
    assert await response.content.read() == completion(" fox", finish="stop") + DONE


async def test_others_go_on_when_one_client_does_not_read(setup, direct):
    receiver, scheduler = direct
    deaf, deaf_rid = await begin(setup, scheduler)
    word = " " + 400 * "the quick brown fox "

    def is_unread():
        scheduler.say(word)
        return receiver.counts.fallbacks[FallbackCause.UNREAD]

    await until(is_unread)
    setup.engine.end()  # of the deaf client's answer; both read from one script
    response, _ = await begin(setup, scheduler)
    scheduler.say(" quick")
    assert await response.content.readuntil(b"\n\n") == completion(" quick")
    deaf.close()
    response.close()
    assert deaf_rid


async def test_what_is_no_datagram_of_ours_ends_the_connection_and_no_answer(setup, direct):
    receiver, scheduler = direct
    response, _ = await begin(setup, scheduler)
    scheduler.sender._socket.send(b"\xc1 nonsense")
    await until(lambda: not receiver.is_ready)
    setup.engine.say(completion(" quick", finish="stop"), DONE)
    setup.engine.end()
    assert await response.content.read() == completion(" quick", finish="stop") + DONE


@pytest.mark.parametrize("changes", [{"protocol": 3}, {"tokenizer_path": "/etc/passwd"}])
async def test_an_engine_is_not_used_when_it_cannot_be_understood(path, changes):
    async with receiving(path, **changes) as (receiver, scheduler):
        scheduler.sender.poll()
        await until(lambda: receiver.refusals)
        scheduler.sender.poll()
        assert not receiver.takes(PLAIN)
        assert not scheduler.sender.is_ready


async def test_chat_goes_another_way_when_the_front_end_changes_its_text(path):
    async with receiving(path, plain_chat=False) as (receiver, scheduler):
        await make_ready(scheduler)
        assert receiver.takes(PLAIN)
        assert not receiver.takes(PLAIN._replace(is_chat=True))


async def test_there_is_no_receiver_when_its_socket_cannot_be_made(tmp_path):
    assert open_receiver(tmp_path / "missing" / "tokens", max_unsent_bytes=1) is None


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, {"plain", "chat", "several", "counted", "tools", "forced", "messages"}),
        ({"plain_chat": False}, {"plain", "several", "counted"}),
        ({"has_tool_parser": True}, {"plain", "chat", "several", "counted", "messages"}),
        (
            {"has_tool_parser": True, "watches_calls": True},
            {"plain", "chat", "several", "counted", "messages", "tools"},
        ),
        (
            {"plain_chat": False, "think": ("<t>", "</t>")},
            {"plain", "several", "counted", "chat", "tools", "forced", "messages"},
        ),
        (
            {"plain_chat": False, "think": ("<t>", "</t>"), "has_tool_parser": True},
            {"plain", "several", "counted", "chat", "messages"},
        ),
        (
            {"plain_responses": True, "plain_generate": True},
            {
                *("plain", "chat", "several", "counted", "tools"),
                *("forced", "messages", "responses", "generate"),
            },
        ),
        ({"protocol": 1, "plain_responses": True, "plain_generate": True}, {"plain", "chat"}),
    ],
    ids=[
        *("parts", "a reasoning parser", "a parser of calls", "a watched parser of calls"),
        *("watched reasoning", "watched reasoning and a parser of calls", "all", "an older engine"),
    ],
)
async def test_an_engine_says_which_answers_its_tokens_are(path, changes, taken):
    asked = {
        "plain": PLAIN,
        "chat": Direct(is_chat=True),
        "several": Direct(is_several=True),
        "counted": Direct(is_counted=True),
        "tools": Direct(is_chat=True, has_tools=True),
        "messages": Direct(Shape.MESSAGES, is_chat=True),
        "forced": Direct(is_chat=True, has_tools=True, is_forced=True),
        "responses": Direct(Shape.RESPONSES, is_chat=True),
        "generate": Direct(Shape.GENERATE),
    }
    async with receiving(path, **changes) as (receiver, scheduler):
        assert not any(map(receiver.takes, asked.values()))
        await make_ready(scheduler)
        assert {name for name, each in asked.items() if receiver.takes(each)} == taken
