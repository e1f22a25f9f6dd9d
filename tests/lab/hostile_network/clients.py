"""Clients that behave, and a probe of /healthz: what an attack on others costs them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from urllib.parse import urlsplit

CLIENTS = 4
ANSWER_TOKENS = 24
HOST = "127.0.0.1"
GIVE_UP_S = 20.0


async def _one_answer(port, key, model, rng):
    """Seconds to the first token of one stream; None if it was refused or cut."""
    body = json.dumps(
        {
            "model": model,
            "prompt": f"Question {rng.random()}: ",
            "max_tokens": ANSWER_TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    start_s = time.perf_counter()
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(HOST, port), GIVE_UP_S)
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"
            b"Content-Length: %d\r\n\r\n" % (key.encode(), len(body)) + body
        )
        async with asyncio.timeout(GIVE_UP_S):
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:20]:
                return None
            await reader.readuntil(b"data: ")
            ttft_s = time.perf_counter() - start_s
            rest = await reader.read()
            while more := await reader.read():
                rest += more
        writer.close()
        return ttft_s if b"[DONE]" in rest else None
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


async def _one_probe(port):
    start_s = time.perf_counter()
    try:
        async with asyncio.timeout(GIVE_UP_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
        return time.perf_counter() - start_s if b" 200 " in answer[:20] else None
    except (OSError, TimeoutError):
        return None


async def measure(daemon, measured_s, seed):
    data, admin = urlsplit(daemon.data_url).port, urlsplit(daemon.admin_url).port
    end_s = time.perf_counter() + measured_s
    ttfts, probes = [], []

    async def client(number):
        rng = random.Random(seed * 100 + number)
        while time.perf_counter() < end_s:
            ttfts.append(await _one_answer(data, daemon.key, daemon.model, rng))
            await asyncio.sleep(rng.uniform(0.0, 0.1))

    async def prober():
        while time.perf_counter() < end_s:
            probes.append(await _one_probe(admin))
            await asyncio.sleep(0.05)

    await asyncio.gather(prober(), *(client(i) for i in range(CLIENTS)))
    return ttfts, probes
