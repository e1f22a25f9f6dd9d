"""Many streams that never pause, in a process of its own: each asks again when its answer is complete.

What to ask comes on standard input; what was seen goes to standard output. Both are JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, cast

import uvloop

MAX_GAPS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoad:
    """`streams` at a time. Gaps and events count between the warm-up and the end."""

    streams: int
    mean_tokens: int
    warm_up_s: float
    measured_s: float
    path: str = "/v1/completions"
    seed: int = 1
    tbt_target_s: float | None = None
    """If given, each answer's gaps are told with its id, and how many were longer."""


class Stream(asyncio.Protocol):
    """One connection, which asks without end."""

    def __init__(self, client: Client, number: int) -> None:
        self._client, self._number = client, number
        self._last = b""
        self._sent_s = 0.0
        self._seen_s: float | None = None
        self.transport: asyncio.Transport | None = None
        self._asked = 0
        self._request_id = ""
        self._gaps = self._late = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's call."""
        self.transport = cast(asyncio.Transport, transport)
        self.ask()

    def ask(self) -> None:
        """Send the next request."""
        assert self.transport is not None
        self._last, self._seen_s = b"", None
        self._request_id, self._gaps, self._late = "", 0, 0
        self._sent_s = perf_counter()
        self._asked += 1
        self.transport.write(self._client.request(self._number, is_first=self._asked == 1))

    def data_received(self, data: bytes) -> None:
        """Asyncio's call."""
        now_s = perf_counter()
        if not self._last and not data.startswith(b"HTTP/1.1 200 "):
            self._client.fail(data[:200])
            return
        if not self._last:
            self._request_id = _request_id(data)
        events = (self._last[-1:] + data).count(b"\n\n")
        self._last = (self._last + data)[-5:]
        if events:
            if self._seen_s is None:
                self._client.first(now_s - self._sent_s, now_s)
                self._gaps += events - 1
            else:
                gap_s = now_s - self._seen_s
                # Of several tokens that come at once all but the first come with no gap at all.
                self._gaps += events
                self._late += gap_s > self._client.tbt_target_s
                self._client.gap(gap_s, now_s)
            self._seen_s = now_s
            self._client.events += events * self._client.is_measured(now_s)
        if self._last == b"0\r\n\r\n":
            self._client.ended(self._request_id, self._gaps, self._late, now_s)
            self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's call."""
        if not self._client.is_over:
            self._client.fail(b"a connection was closed")


class Client:
    """All streams, and what they saw."""

    def __init__(self, target: Mapping[str, Any], load: StreamLoad) -> None:
        self._target, self._load = target, load
        self._rng = random.Random(load.seed)
        self._ttft_s: list[float] = []
        self._gaps_s: list[float] = []
        self._answers: list[tuple[str, int, int]] = []
        """Those that ended in the measured time: request id, gaps, and how many were over the target."""
        self.tbt_target_s = math.inf if load.tbt_target_s is None else load.tbt_target_s
        self._failed = 0
        self._failure = ""
        self.events = 0
        self.is_over = False
        self._from_s = self._to_s = 0.0

    def is_measured(self, now_s: float) -> bool:
        """Whether it counts."""
        return self._from_s <= now_s < self._to_s

    def first(self, ttft_s: float, now_s: float) -> None:
        """An answer began."""
        if self.is_measured(now_s):
            self._ttft_s.append(ttft_s)

    def gap(self, gap_s: float, now_s: float) -> None:
        """An answer went on."""
        if self.is_measured(now_s) and len(self._gaps_s) < MAX_GAPS:
            self._gaps_s.append(gap_s)

    def ended(self, request_id: str, gaps: int, late: int, now_s: float) -> None:
        """An answer is whole."""
        if self._load.tbt_target_s is not None and self.is_measured(now_s):
            self._answers.append((request_id, gaps, late))

    def fail(self, why: bytes) -> None:
        """Something else than an answer."""
        self._failed += 1
        self._failure = why.decode(errors="replace")

    def request(self, number: int, *, is_first: bool) -> bytes:
        """A request's bytes; first ones are cut short at random, so that streams end at different times."""
        mean = self._load.mean_tokens
        low = 0.02 if is_first else 0.5
        body: dict[str, Any] = {
            "model": self._target["model"],
            "max_tokens": max(2, round(self._rng.uniform(low, 1.5) * mean)),
            "ignore_eos": True,
            "stream": True,
        }
        text = f"Stream {number}: " + "tell me more of it. " * 8
        if self._load.path.endswith("chat/completions"):
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        data = json.dumps(body | self._target.get("extra", {})).encode()
        head = (
            f"POST {self._load.path} HTTP/1.1\r\nhost: bench\r\n"
            f"authorization: Bearer {self._target['key']}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    async def run(self) -> dict[str, Any]:
        """Ask for the time of the load."""
        gc.collect()
        gc.freeze()
        gc.disable()
        loop = asyncio.get_running_loop()
        begin_s = perf_counter()
        self._from_s = begin_s + self._load.warm_up_s
        self._to_s = self._from_s + self._load.measured_s
        host, port = self._target["host"], self._target["port"]
        streams = []
        for number in range(self._load.streams):
            _, stream = await loop.create_connection(lambda n=number: Stream(self, n), host, port)
            streams.append(stream)
            await asyncio.sleep(0.5 * self._load.warm_up_s / self._load.streams)
        await asyncio.sleep(self._from_s - perf_counter())
        sys.stdout.write("measuring\n")
        sys.stdout.flush()
        cpu_s = process_time()
        await asyncio.sleep(self._to_s - perf_counter())
        cpu_s = process_time() - cpu_s
        sys.stdout.write("measured\n")
        sys.stdout.flush()
        self.is_over = True
        for stream in streams:
            if stream.transport is not None:
                stream.transport.abort()
        gaps, ttft = sorted(self._gaps_s), sorted(self._ttft_s)
        return {
            "events_per_s": self.events / self._load.measured_s,
            "gap_p50_ms": _percentile(gaps, 0.5),
            "gap_p99_ms": _percentile(gaps, 0.99),
            "gap_p999_ms": _percentile(gaps, 0.999),
            "gap_max_ms": _percentile(gaps, 1.0),
            "ttft_p50_ms": _percentile(ttft, 0.5),
            "answers": len(ttft),
            "failed": self._failed,
            "failure": self._failure,
            "client_cpu_s": cpu_s,
        } | ({} if self._load.tbt_target_s is None else {"by_request": self._answers})


def _request_id(head: bytes) -> str:
    """What the gateway calls the request; empty behind another server."""
    found = re.search(rb"\r\nx-request-id: *(\S+)\r\n", head, re.IGNORECASE)
    return "" if found is None else found[1].decode()


def _percentile(values: list[float], part: float) -> float:
    return 1000.0 * values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


async def main() -> None:
    """Send one load."""
    given = json.loads(sys.stdin.read())
    seen = await Client(given["target"], StreamLoad(**given["load"])).run()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
