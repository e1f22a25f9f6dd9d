"""Requests that are wrong somewhere, by a seed."""

from __future__ import annotations

import asyncio
import random

from hostile_network.attackers import ATTACKER, GIVE_UP_S, TARGET


def _malformed(rng, key):
    """One request that is wrong somewhere, or random bytes."""

    def noise(most):
        return rng.randbytes(rng.randrange(most))

    word = rng.choice((b"GET", b"POST", b"PUT", b"G\0T", b"A" * 300, b"OPTIONS", b"CONNECT", b"PRI", b"get"))
    path = rng.choice(
        (
            b"/v1/completions",
            b"/v1%2Fmodels",
            b"/%00",
            b"//",
            b"*",
            b"/" + b"a" * 70000,
            b"\xff\xfe",
            b"/../etc",
            b"http://evil/",
            b"/api/v1/tenants",
            b"/healthz",
            b"/metrics?x=%ff",
            b"/v1/models HTTP/1.1 x",
        )
    )
    version = rng.choice((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/2.0", b"ICY/1", b""))
    headers = [b"Host: x"] if rng.random() < 0.5 else []
    possible = (
        b"Host: evil.example",
        b"Host:",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 5",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Type: \xff",
        b"Authorization: Bearer " + noise(40).hex().encode(),
        b"Authorization: Bearer " + key,
        b"Authorization: Basic !!!",
        b"X: " + b"y" * rng.choice((10, 9000, 70000)),
        b"Expect: 100-continue",
        b"Connection: upgrade\r\nUpgrade: h2c",
        b"a:",
        b" folded: x",
        b"no colon here",
        b"X\0Y: z",
        b"Cookie: " + noise(50).hex().encode(),
        b"Last-Event-ID: " + b"9" * 30,
    )
    headers += rng.sample(possible, rng.randrange(0, 5))
    body = rng.choice(
        (
            b"",
            b"{",
            b"[" * 5000,
            b'{"model":1}',
            b"null",
            b"\xff\xfe",
            noise(300),
            b'{"model":"llama-8b","prompt":{}}',
            b'{"model":"llama-8b","prompt":"x","n":1e400}',
            b"5\r\nhello\r\n0\r\n\r\n",
            b"zz\r\n",
            b'{"a":' * 3000,
        )
    )
    if rng.random() < 0.1:
        return noise(2000)
    ending = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
    return ending.join([b" ".join((word, path, version)), *headers, b"", b""]) + body


async def send_malformed(port, seed, count, key):
    """Statuses by how often; `closed` without an answer, `open` if nothing came within a moment."""
    rng = random.Random(seed)
    seen = {}

    async def one(request):
        try:
            async with asyncio.timeout(GIVE_UP_S):
                reader, writer = await asyncio.open_connection(TARGET, port, local_addr=(ATTACKER, 0))
                writer.write(request)
                if writer.can_write_eof():
                    writer.write_eof()
                status = "closed"
                try:
                    answer = await asyncio.wait_for(reader.read(200), 1.0)
                    if answer.startswith(b"HTTP/1.1 "):
                        status = answer[9:12].decode("latin-1")
                except TimeoutError:
                    status = "open"
                writer.transport.abort()
        except (OSError, TimeoutError):
            status = "closed"
        seen[status] = seen.get(status, 0) + 1

    for _ in range(0, count, 50):
        await asyncio.gather(*(one(_malformed(rng, key)) for _ in range(50)))
    return dict(sorted(seen.items()))
