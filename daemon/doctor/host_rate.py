"""What rate of tokens this host carries, measured: the daemon's own way from a scheduler's step to sockets.

The daemon's part runs here, as it runs in a daemon; the scheduler and the clients are one process more
(`host_peer.py`), which gives each of so many streams a token every 20 ms. Rates rise until one step in ten is
not with all clients within half of that time. What a model's engine takes of the processors beside it is not
in the figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from pdmuxd.daemon.doctor.findings import Finding, info, ok, warn
from pdmuxd.daemon.doctor.host_peer import STEP_S, Stage
from pdmuxd.daemon.tokens.receiver import TokenReceiver

STREAMS = (25, 50, 100, 200, 300, 400, 600, 800)
"""At a token in 20 ms each: 1,250 to 40,000 tokens/s."""
STAGE_S = 0.8
LATEST_S = STEP_S / 2
MOST_S = 10.0
BUSY_GPU_TOKENS_PER_S = 7_000
"""What an H100 makes of short chats by an 8B model (docs/measurements/h100.md)."""
_UNSENT_BYTES = 2**18
_FIRST = b'data: {"id":"%b","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null}]}\n\n'


@dataclass(frozen=True, slots=True)
class HostRate:
    """What was found."""

    tokens_per_s: float
    """The greatest rate that was carried; 0: not even the smallest."""
    cpu_s_per_token: float
    """Of the daemon's loop, at that rate."""
    late_at: Stage | None = None
    """The rate that was not; None: all were."""


class _Client(asyncio.Protocol):
    """The daemon's end of a client's connection, in the place of an HTTP server's."""

    def __init__(self, receiver: TokenReceiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.WriteTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self.write: Callable[[bytes], None] = lambda _: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self.write = self._transport.write

    def data_received(self, data: bytes) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer(data.strip().decode()))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's call
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End the connection, and what writes to it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, request_id: str) -> None:
        stream = self._receiver.open(request_id)
        try:
            await stream.feed(_FIRST % request_id.encode())
            while events := await stream.outbox.take():
                self.write(self.frame(events))
                stream.outbox.use_writer(self)
        finally:
            stream.outbox.use_writer(None)
            self._receiver.leave(request_id)

    def frame(self, events: bytes) -> bytes:
        """Frame bytes as a part of an answer in chunks."""
        return b"%x\r\n%b\r\n" % (len(events), events)

    def wrote(self, at_s: float) -> None:
        """Nobody asks."""


async def measure_host(progress: Callable[[str], None] = lambda _: None) -> HostRate | None:
    """Some seconds, at most MOST_S; None if this machine did not let it be measured."""
    carried = HostRate(0.0, 0.0)
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        receiver = TokenReceiver(Path(folder) / "s.tokens", max_unsent_bytes=_UNSENT_BYTES)
        clients: list[_Client] = []

        def client() -> _Client:
            clients.append(_Client(receiver))
            return clients[-1]

        server = await asyncio.get_running_loop().create_server(client, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(MOST_S), aclosing(_stages(folder, port)) as stages:
                tokens, cpu_s = 0, time.thread_time()
                async for stage in stages:
                    spent_s, new = time.thread_time() - cpu_s, receiver.counts.tokens - tokens
                    tokens, cpu_s = receiver.counts.tokens, time.thread_time()
                    progress(f"{stage.tokens_per_s:,.0f} tokens/s: p90 {1000 * stage.late_p90_s:.1f} ms late")
                    if stage.late_p90_s > LATEST_S:
                        return HostRate(carried.tokens_per_s, carried.cpu_s_per_token, stage)
                    carried = HostRate(stage.tokens_per_s, spent_s / max(new, 1))
        except (TimeoutError, OSError):
            return carried if carried.tokens_per_s else None
        finally:
            server.close()
            for each in clients:
                await each.close()
            receiver.close()
    return carried if carried.tokens_per_s else None


async def _stages(folder: str, port: int) -> AsyncGenerator[Stage]:
    """What the other process tells, one line a stage."""
    plan = ",".join(map(str, STREAMS))
    peer = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-P",
            "-m",
            "pdmuxd.daemon.doctor.host_peer",
            folder,
            str(port),
            plan,
            str(STAGE_S),
        ),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert peer.stdout is not None  # noqa: S101 - a narrowing: it was asked for
        while line := await peer.stdout.readline():
            yield msgspec.json.decode(line, type=Stage)
    finally:
        with contextlib.suppress(ProcessLookupError):
            peer.kill()
        await peer.wait()


def check_host(found: HostRate | None) -> Finding:
    """What it means for this host."""
    if found is None:
        return info("host", "the rate of tokens could not be measured")
    detail = f"carries {found.tokens_per_s:,.0f} tokens/s, {1e6 * found.cpu_s_per_token:.0f} us of CPU each"
    if not found.tokens_per_s:
        detail = "carries no rate that was tried"
    if found.late_at is not None:
        stage = found.late_at
        detail += f"; at {stage.tokens_per_s:,.0f} one step in ten came {1000 * stage.late_p90_s:.0f} ms late"
    if found.tokens_per_s >= BUSY_GPU_TOKENS_PER_S:
        return ok("host", detail)
    return warn(
        "host",
        detail,
        f"a GPU may make {BUSY_GPU_TOKENS_PER_S:,}: give the daemon cores of its own, or see what else runs",
    )
