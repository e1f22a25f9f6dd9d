"""An open-loop client in one process: sends each request at its time, and notes when each token came."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import aiohttp

from pdmuxd.daemon.bench.load.workload import Request

_COMPLETION = re.compile(rb'"completion_tokens": ?(\d+)')
_IDLE_S = 10.0
KEEP_ALIVE_S = 2.0
"""SGLang closes idle connections after 5 s; one that is used just then fails."""
_CACHED = re.compile(rb'"cached_tokens": ?(\d+)')


@dataclass(slots=True)
class Seen:
    """What happened to one request."""

    request: Request
    sent_late_s: float = 0.0
    """How much later than planned it was sent: the client's own lag, part of the TTFT."""
    ttft_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    """Between tokens; several that came in one piece are 0 s apart."""
    tokens: int = 0
    cached_tokens: int = 0
    outcome: str = "cut"
    """`done`; `cut` by the end of the run; `left` by the client on purpose; `error`."""
    error: str = ""
    waited_s: float = 0.0
    """From arrival to its end or to the cut."""


async def send_all(
    base_url: str,
    requests: Sequence[Request],
    *,
    vocab: int,
    tenants: bool,
    drain_s: float,
    name: str,
    key: str | None = None,
) -> list[Seen]:
    """Send everything; whatever is unfinished `drain_s` after the last arrival is cut and aborted.

    With an API `key` it is a gateway that is asked: its engine is left as it is.
    """
    headers = {"authorization": f"Bearer {key}"} if key is not None else {}
    bodies = [
        request.body(rid=f"{name}-{number}", vocab=vocab, tenant=tenants)
        for number, request in enumerate(requests)
    ]
    seen = [Seen(request) for request in requests]
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            base_url, connector=connector, timeout=timeout, headers=headers
        ) as session:
            begin_s = perf_counter() + 0.3
            tasks = [
                asyncio.create_task(_one(session, body, what, begin_s + what.request.at_s))
                for body, what in zip(bodies, seen, strict=True)
            ]
            limit_s = begin_s + requests[-1].at_s + drain_s - perf_counter()
            try:
                await asyncio.wait(tasks, timeout=limit_s)
            finally:
                # Also if this is told to stop: nothing may ask of a session that is closed.
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if key is None:
                await make_idle(session)
    finally:
        gc.enable()
        gc.unfreeze()
    return seen


async def make_idle(session: aiohttp.ClientSession, *, limit_s: float = 20.0) -> None:
    """Abort what is left and empty the cache, so that the next run finds a fresh server."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(limit_s):
            await (await session.post("/abort_request", json={"rid": "", "abort_all": True})).release()
            while True:
                async with session.post("/flush_cache") as response:
                    if response.status == 200:
                        return
                await asyncio.sleep(0.2)
    print("warning: the server did not become idle after the run", flush=True)


async def is_idle(base_url: str) -> bool:
    """Whether nothing is left of a run: what works on it still would slow the next one."""
    timeout = aiohttp.ClientTimeout(total=_IDLE_S)
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with (
            aiohttp.ClientSession(base_url, timeout=timeout) as session,
            session.post("/flush_cache") as response,
        ):
            return response.status == 200
    return False


async def _one(session: aiohttp.ClientSession, body: bytes, seen: Seen, due_s: float) -> None:
    await asyncio.sleep(max(0.0, due_s - perf_counter()))
    seen.sent_late_s = perf_counter() - due_s
    headers = {"content-type": "application/json"}
    try:
        async with session.post("/generate", data=body, headers=headers) as response:
            if response.status != 200:
                seen.error = f"{response.status}: {(await response.text())[:200]}"
                seen.outcome = "error"
                return
            await _read(response, seen, due_s)
        if seen.tokens == seen.request.output_tokens:
            seen.outcome = "done"
        elif _has_left(seen):
            seen.outcome = "left"
        else:
            seen.outcome, seen.error = "error", f"{seen.tokens} of {seen.request.output_tokens} tokens"
    except (aiohttp.ClientError, OSError) as error:
        seen.outcome, seen.error = "error", f"{type(error).__name__}: {error}"
    finally:
        seen.waited_s = perf_counter() - due_s


async def _read(response: aiohttp.ClientResponse, seen: Seen, due_s: float) -> None:
    """Note the tokens of each piece when it arrives."""
    rest = b""
    last_s = due_s
    async for piece in response.content.iter_any():
        now_s = perf_counter()
        whole, found, rest = (rest + piece).rpartition(b"\n\n")
        if not found:
            continue
        counts = _COMPLETION.findall(whole)
        new = int(counts[-1]) - seen.tokens if counts else 0
        if new <= 0:
            continue
        if seen.ttft_s is None:
            seen.ttft_s = now_s - due_s
            cached = _CACHED.search(whole)
            seen.cached_tokens = int(cached[1]) if cached else 0
            new -= 1
            seen.tokens += 1
            seen.gaps_s.extend([0.0] * new)
        else:
            seen.gaps_s.append(now_s - last_s)
            seen.gaps_s.extend([0.0] * (new - 1))
        seen.tokens += new
        last_s = now_s
        if _has_left(seen):
            response.close()
            return


def _has_left(seen: Seen) -> bool:
    limit = seen.request.leave_after_tokens
    return limit is not None and seen.tokens > limit
