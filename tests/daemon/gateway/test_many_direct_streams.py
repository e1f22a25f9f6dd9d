"""Many direct streams, and what happens to all of them at once: they leave, or their engine is killed."""

import asyncio
import contextlib
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from lone_gateway import KEY, lone_gateway
from token_vocabulary import make_tokenizer

from pdmuxd.daemon.tokens.counts import FallbackCause
from pdmuxd.daemon.tokens.receiver import TokenReceiver

ENGINE = Path(__file__).parents[2] / "lab" / "front_end" / "fake_engine.py"
STREAMS = 100
STEP_S, STRIDE = 0.02, 31
BUFFER_BYTES = 256 * 1024
"""Of each stream, as `lone_gateway` has it."""
WAIT_S = 60
TEXT = re.compile(rb'"text":("(?:[^"\\]|\\.)*")')


def request_of(model, max_tokens=100_000):
    fields = {"model": model, "prompt": "x", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """Asks for one long answer, and keeps what it gets."""

    def __init__(self, model, max_tokens=100_000):
        self.request = request_of(model, max_tokens)
        self.got = bytearray()
        self.is_closed = False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.got += data

    def connection_lost(self, _):
        self.is_closed = True

    @property
    def events(self):
        return self.got.count(b'"finish_reason"')

    def texts(self):
        return [json.loads(text) for text in TEXT.findall(self.got)]


@dataclass
class Served:
    """A gateway in front of an engine that gives each stream a token every `STEP_S`."""

    port: int
    receiver: TokenReceiver
    engine: subprocess.Popen
    words: dict
    model: str

    async def ask(self, count, **fields):
        loop = asyncio.get_running_loop()

        async def one():
            made = await loop.create_connection(lambda: Client(self.model, **fields), "127.0.0.1", self.port)
            return made[1]

        return [await one() for _ in range(count)]

    def is_own(self, client):
        """Whether each token follows the one before in its own stream: no other's would, nor after a loss."""
        said = [self.words[text] for text in client.texts()]
        pairs = itertools.pairwise(said)
        return all((after - before - STRIDE) % len(self.words) == 0 for before, after in pairs)


@contextlib.contextmanager
def engine_running():
    """The engine that computes nothing, and its port."""
    command = [sys.executable, str(ENGINE), str(STEP_S), "tokenizer.json", "tokens"]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield engine, int(engine.stdout.readline())
    finally:
        engine.kill()
        engine.communicate()


@pytest.fixture
async def served(tmp_path, monkeypatch, request):
    model = getattr(request, "param", "m")
    monkeypatch.chdir(tmp_path)
    tokenizer = make_tokenizer(Path("tokenizer.json"))
    with engine_running() as (engine, port):
        url = f"http://127.0.0.1:{port}"
        async with lone_gateway(url, "k", model, tokens=Path("tokens")) as (gateway, receiver):
            await until(lambda: receiver.is_ready)
            gateway_port = int(gateway.rpartition(":")[2])
            yield Served(gateway_port, receiver, engine, words_of(tokenizer), model)


def words_of(tokenizer):
    """As the engine has them: each stream says one after the other, `STRIDE` apart."""
    known = sorted(tokenizer.get_vocab().items())
    words = [text for text, _ in known if len(text) > 2 and text[1:].isascii() and text[1:].isalpha()]
    return {word.replace("Ġ", " "): number for number, word in enumerate(words)}


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.01)


async def test_nothing_is_left_when_all_clients_leave_in_one_turn(served):
    receiver = served.receiver
    clients = await served.ask(STREAMS)
    await until(lambda: all(client.events > 5 for client in clients))
    assert receiver.open_streams == STREAMS
    assert receiver.counts.tokens > STREAMS
    for client in clients:
        client.transport.abort()
    await until(lambda: not receiver.open_streams)
    assert receiver.counts.held_bytes == 0
    assert all(map(served.is_own, clients))
    (again,) = await served.ask(1, max_tokens=20)
    await until(lambda: b"[DONE]" in again.got)
    assert served.is_own(again)
    assert len(again.texts()) == 20
    again.transport.abort()


async def test_every_client_is_told_when_the_engine_is_killed_in_mid_burst(served):
    clients = await served.ask(STREAMS)
    await until(lambda: all(client.events > 5 for client in clients))
    served.engine.send_signal(signal.SIGKILL)
    await until(lambda: all(b"engine_lost" in client.got for client in clients))
    assert all(map(served.is_own, clients))
    await until(lambda: not served.receiver.open_streams)
    assert served.receiver.counts.held_bytes == 0
    assert not served.receiver.is_ready


@pytest.mark.parametrize("served", ["m" * 4000], indirect=True, ids=["large-events"])
async def test_memory_is_bounded_and_others_are_served_beside_clients_that_read_nothing_or_little(served):
    receiver, count = served.receiver, max(10, STREAMS // 10)
    most = count * (BUFFER_BYTES + 8192) + count * 8192
    others = await served.ask(count)
    slow = [await slow_client(served) for _ in range(count)]
    reading = asyncio.create_task(read_little(slow[: count // 2]))
    held = 0

    def are_told_apart():
        nonlocal held
        held = max(held, receiver.counts.held_bytes)
        return receiver.counts.fallbacks[FallbackCause.UNREAD] >= count

    await until(are_told_apart)
    assert BUFFER_BYTES < held <= most
    before = [client.events for client in others]
    await until(lambda: all(c.events > n + 20 for c, n in zip(others, before, strict=True)))
    assert receiver.counts.fallbacks[FallbackCause.UNREAD] == count
    assert all(map(served.is_own, others))
    reading.cancel()
    for client in others:
        client.transport.abort()
    for end in slow:
        end.close()
    await until(lambda: not receiver.open_streams)
    assert receiver.counts.held_bytes == 0


async def slow_client(served):
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(end, ("127.0.0.1", served.port))
    await loop.sock_sendall(end, request_of(served.model))
    return end


async def read_little(ends):
    """A byte a second."""
    while True:
        for end in ends:
            with contextlib.suppress(BlockingIOError):
                end.recv(1)
        await asyncio.sleep(1.0)
