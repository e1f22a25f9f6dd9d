"""The load of `bench_gateway.py`, in a process of its own.

One arm's description comes on standard input; what was seen goes to standard output. Both are JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, cast

import uvloop

MEAN_TOKENS = 25
"""Short answers make many requests, and so a median TTFT that a step's length does not blur."""
WARM_UP_S = 4.0
"""Until as many streams end as begin: longer than the longest stream."""
PATH = "/v1/completions"
MAX_IDLE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An open load: requests arrive whether or not the server keeps up."""

    streams: int
    tokens_per_s: float
    measured_s: float
    seed: int

    @property
    def step_s(self) -> float:
        """The gap between a stream's tokens that makes the two numbers fit together."""
        return self.streams / self.tokens_per_s

    def requests(self) -> list[tuple[float, int]]:
        """(seconds from the start, output tokens) of each: Poisson arrivals, uniform lengths."""
        rng = random.Random(self.seed)
        requests, at_s = [], 0.0
        while at_s < WARM_UP_S + self.measured_s:
            requests.append((at_s, round(rng.uniform(0.5, 1.5) * MEAN_TOKENS)))
            at_s += rng.expovariate(self.tokens_per_s / MEAN_TOKENS)
        return requests


class Stream(asyncio.Protocol):
    """One keep-alive connection; reads just enough of an answer to time it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last = b""
        self._sent_s: float | None = None
        self.transport: asyncio.Transport | None = None
        self.is_busy = False
        self.idle_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's call."""
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        """Ask; the answer to the previous request must be complete."""
        assert self.transport is not None
        self._last = b""
        self.is_busy = True
        self._sent_s = perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Asyncio's call."""
        now_s = perf_counter()
        if not self._last and not data.startswith(b"HTTP/1.1 200 "):
            self._client.fail(self, data[:200])
            return
        # Each event ends with an empty line, which may have been cut in two.
        events = (self._last[-1:] + data).count(b"\n\n")
        self._last = (self._last + data)[-5:]
        if events and self._sent_s is not None:
            self._client.first(self._sent_s, now_s)
            self._sent_s = None
        self._client.events(events, now_s)
        if self._last == b"0\r\n\r\n":
            self._client.end(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's call; idle connections are closed by either side."""
        self._client.lost(self)


class Client:
    """Sends a load and keeps what it saw between the warm-up and the end."""

    def __init__(self, target: Mapping[str, Any], load: Load) -> None:
        self._target = target
        self._load = load
        self._begin_s = 0.0
        self._idle: list[Stream] = []
        self._open = 0
        self._done = asyncio.Event()
        self._ttft_s: list[float] = []
        self._open_samples: list[int] = []
        self._events = self._failed = 0
        self._failure = ""

    async def run(self) -> dict[str, Any]:
        """Send everything, wait for the last answer."""
        requests = self._load.requests()
        bodies = [self._request(i, tokens) for i, (_, tokens) in enumerate(requests)]
        gc.collect()
        gc.freeze()
        gc.disable()
        self._begin_s = perf_counter() + 0.2
        cpu_s = process_time()
        for (at_s, _), body in zip(requests, bodies, strict=True):
            await asyncio.sleep(max(0.0, self._begin_s + at_s - perf_counter()))
            if self._is_measured(perf_counter()):
                self._open_samples.append(self._open)
            self._open += 1
            self._done.clear()
            (await self._stream()).send(body)
        async with asyncio.timeout(60.0):
            await self._done.wait()
        return {
            "ttft_s": self._ttft_s,
            "tokens_per_s": self._events / self._load.measured_s,
            "streams": statistics.mean(self._open_samples),
            "failed": self._failed,
            "failure": self._failure,
            "client_cpu_s": process_time() - cpu_s,
        }

    def first(self, sent_s: float, now_s: float) -> None:
        """A request got its first event."""
        if self._is_measured(sent_s):
            self._ttft_s.append(now_s - sent_s)

    def events(self, count: int, now_s: float) -> None:
        """Events arrived, of any stream."""
        if self._is_measured(now_s):
            self._events += count

    def end(self, stream: Stream) -> None:
        """An answer is complete; its connection is free again."""
        stream.idle_since_s = perf_counter()
        self._idle.append(stream)
        self._free(stream)

    def fail(self, stream: Stream, why: bytes) -> None:
        """A request was refused, or its connection closed."""
        self._failed += 1
        self._failure = why.decode(errors="replace")
        self._free(stream)
        if stream.transport is not None:
            stream.transport.abort()

    def lost(self, stream: Stream) -> None:
        """A connection was closed."""
        if stream.is_busy:
            self.fail(stream, b"the connection was closed")

    def _free(self, stream: Stream) -> None:
        stream.is_busy = False
        self._open -= 1
        if not self._open:
            self._done.set()

    def _is_measured(self, now_s: float) -> bool:
        return WARM_UP_S <= now_s - self._begin_s < WARM_UP_S + self._load.measured_s

    async def _stream(self) -> Stream:
        # The last one used first; servers may be about to close one that was idle for long.
        while self._idle:
            stream = self._idle.pop()
            if perf_counter() - stream.idle_since_s < MAX_IDLE_S:
                return stream
            if stream.transport is not None:
                stream.transport.abort()
        loop = asyncio.get_running_loop()
        host, port = self._target["host"], self._target["port"]
        _, stream = await loop.create_connection(lambda: Stream(self), host, port)
        return stream

    def _request(self, number: int, tokens: int) -> bytes:
        body = json.dumps(
            {
                "model": self._target["model"],
                "prompt": f"Request {number} of seed {self._load.seed}: " + "tell me more. " * 8,
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
                **self._target["extra"],
            }
        ).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {self._target['key']}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def main() -> None:
    """Send one arm's load."""
    given = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps(await Client(given["target"], Load(**given["load"])).run()))


if __name__ == "__main__":
    uvloop.run(main())
