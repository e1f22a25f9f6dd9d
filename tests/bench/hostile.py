"""A hostile network on loopback: what attacks on both ports do to the daemon and to its other clients.

`python tests/bench/hostile.py` starts a daemon of its own on free ports, measures well-behaved clients alone
and beside each attack, and prints a table for docs/reliability.md. Seeded, bounded in connections, bytes and
time, and nothing leaves loopback: attackers come from 127.0.0.2, clients from 127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_process import Daemon, ask  # noqa: E402 - tests/support is not a package

ATTACKER = "127.0.0.2"
CLIENT = "127.0.0.1"
CLIENTS = 4
ANSWER_TOKENS = 24
FLOOD_BYTES = 60 * 2**20
LONG_HEADER_BYTES = 20 * 2**20
GIVE_UP_S = 20.0


# --- the attackers, in a process of their own -------------------------------------------------------------


async def _connect(port):
    return await asyncio.wait_for(
        asyncio.open_connection(CLIENT, port, local_addr=(ATTACKER, 0)), GIVE_UP_S
    )


async def _hold(port, first, count, stop):
    """Open connections that send `first` and then nothing; how many are still open at the end."""
    writers = []
    for _ in range(count):
        if stop.is_set():
            break
        try:
            reader, writer = await _connect(port)
            writer.write(first)
        except (OSError, TimeoutError):
            continue
        writers.append((reader, writer))
        if len(writers) % 50 == 0:
            await asyncio.sleep(0.02)
    while not stop.is_set():
        await asyncio.sleep(0.2)
    still_open = 0
    for reader, writer in writers:
        try:
            while await asyncio.wait_for(reader.read(65536), 0.001):
                pass
        except TimeoutError:
            still_open += 1
        except OSError:
            pass
        writer.transport.abort()
    return still_open


async def _pour(port, head, piece, total_bytes, stop):
    """Send a head that never ends; the bytes that were taken."""
    sent = 0
    try:
        _, writer = await _connect(port)
        writer.write(head)
        while sent < total_bytes and not stop.is_set():
            writer.write(piece)
            sent += len(piece)
            await asyncio.wait_for(writer.drain(), GIVE_UP_S)
        await asyncio.sleep(0.5)
        writer.transport.abort()
    except (OSError, TimeoutError):
        pass
    return sent


async def _unread(port, request, count, stop):
    """Ask and never read."""
    loop = asyncio.get_running_loop()
    transports = []
    for _ in range(count):
        if stop.is_set():
            break
        try:
            transport, _ = await asyncio.wait_for(
                loop.create_connection(_Deaf, CLIENT, port, local_addr=(ATTACKER, 0)), GIVE_UP_S
            )
        except (OSError, TimeoutError):
            continue
        transport.write(request)
        transports.append(transport)
        if len(transports) % 50 == 0:
            await asyncio.sleep(0.02)
    while not stop.is_set():
        await asyncio.sleep(0.2)
    for transport in transports:
        transport.abort()
    return len(transports)


class _Deaf(asyncio.Protocol):
    def connection_made(self, transport):
        transport.pause_reading()


async def _attack(name, port, key, model, count, stop):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    if name == "silent":
        return await _hold(port, b"", count, stop)
    if name == "half-open":
        return await _hold(port, head + b"X-A: 1\r\nX-B", count, stop)
    if name == "half a body":
        return await _hold(port, head + b"Content-Length: 1000\r\n\r\n{", count, stop)
    if name == "header flood":
        return await _pour(port, head, b"a:\r\n" * 16384, FLOOD_BYTES, stop)
    if name == "one long header":
        return await _pour(port, head + b"X-A: ", b"a" * 65536, LONG_HEADER_BYTES, stop)
    body = json.dumps(
        {"model": model, "prompt": "x", "max_tokens": 20000, "ignore_eos": True, "stream": True}
    ).encode()
    stream = head + b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key.encode(), len(body)) + body
    if name == "slow read":
        # Eight streams hold all the places of their tenant; the others want lists of models, many each.
        listing = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % key.encode()
        held, asked = await asyncio.gather(
            _unread(port, stream, 8, stop), _unread(port, listing * 200, count - 8, stop)
        )
        return held + asked
    raise ValueError(name)


def _attacker(name, port, key, model, count, stop, result):
    result.put(asyncio.run(_attack(name, port, key, model, count, stop)))


# --- the well-behaved clients ------------------------------------------------------------------------------


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
        reader, writer = await asyncio.wait_for(asyncio.open_connection(CLIENT, port), GIVE_UP_S)
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
            reader, writer = await asyncio.open_connection(CLIENT, port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
        return time.perf_counter() - start_s if b" 200 " in answer[:20] else None
    except (OSError, TimeoutError):
        return None


async def _measure(daemon, key, measured_s, seed):
    data, admin = urlsplit(daemon.data_url).port, urlsplit(daemon.admin_url).port
    end_s = time.perf_counter() + measured_s
    ttfts, probes = [], []

    async def client(number):
        rng = random.Random(seed * 100 + number)
        while time.perf_counter() < end_s:
            ttfts.append(await _one_answer(data, key, daemon.model, rng))
            await asyncio.sleep(rng.uniform(0.0, 0.1))

    async def prober():
        while time.perf_counter() < end_s:
            probes.append(await _one_probe(admin))
            await asyncio.sleep(0.05)

    await asyncio.gather(prober(), *(client(i) for i in range(CLIENTS)))
    return ttfts, probes


def _p99(values):
    known = [value for value in values if value is not None]
    return statistics.quantiles(known, n=100)[98] if len(known) > 1 else float("nan")


def _row(name, seen, daemon, extra=""):
    ttfts, probes = seen
    failed = sum(value is None for value in ttfts), sum(value is None for value in probes)
    worst = max((value for value in probes if value is not None), default=float("nan"))
    median = statistics.median([v for v in ttfts if v is not None] or [float("nan")])
    print(
        f"| {name} | {len(ttfts)} | {failed[0]} | {median * 1e3:.0f} | {_p99(ttfts) * 1e3:.0f} | {_p99(probes) * 1e3:.0f} | "
        f"{worst * 1e3:.0f} | {failed[1]} | {_rss_mib(daemon.process.pid):.0f} | {extra} |",
        flush=True,
    )


def _rss_mib(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def _sockets(pid):
    folder = Path(f"/proc/{pid}/fd")
    found = 0
    for name in os.listdir(folder):
        try:
            found += os.readlink(folder / name).startswith("socket:")
        except FileNotFoundError:
            continue
    return found


# --- malformed requests ------------------------------------------------------------------------------------


def _malformed(rng, key):
    """One request that is wrong somewhere, or random bytes."""
    def noise(most):
        return rng.randbytes(rng.randrange(most))

    word = rng.choice((b"GET", b"POST", b"PUT", b"G\0T", b"A" * 300, b"OPTIONS", b"CONNECT", b"PRI", b"get"))
    path = rng.choice(
        (b"/v1/completions", b"/v1%2Fmodels", b"/%00", b"//", b"*", b"/" + b"a" * 70000, b"\xff\xfe", b"/../etc",
         b"http://evil/", b"/api/v1/tenants", b"/healthz", b"/metrics?x=%ff", b"/v1/models HTTP/1.1 x")
    )
    version = rng.choice((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/2.0", b"ICY/1", b""))
    headers = [b"Host: x"] if rng.random() < 0.5 else []
    possible = (
        b"Host: evil.example", b"Host:", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked",
        b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5",
        b"Content-Length: 5\r\nContent-Length: 6", b"Content-Type: \xff", b"Authorization: Bearer " + noise(40).hex().encode(),
        b"Authorization: Bearer " + key, b"Authorization: Basic !!!", b"X: " + b"y" * rng.choice((10, 9000, 70000)),
        b"Expect: 100-continue", b"Connection: upgrade\r\nUpgrade: h2c", b"a:", b" folded: x", b"no colon here",
        b"X\0Y: z", b"Cookie: " + noise(50).hex().encode(), b"Last-Event-ID: " + b"9" * 30,
    )
    headers += rng.sample(possible, rng.randrange(0, 5))
    body = rng.choice(
        (b"", b"{", b"[" * 5000, b'{"model":1}', b"null", b"\xff\xfe", noise(300), b'{"model":"llama-8b","prompt":{}}',
         b'{"model":"llama-8b","prompt":"x","n":1e400}', b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b'{"a":' * 3000)
    )
    if rng.random() < 0.1:
        return noise(2000)
    ending = rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
    return ending.join([b" ".join((word, path, version)), *headers, b"", b""]) + body


async def _send_malformed(port, seed, count, key):
    """Statuses by how often; `closed` without an answer, `open` if nothing came within a moment."""
    rng = random.Random(seed)
    seen = {}

    async def one(request):
        try:
            async with asyncio.timeout(GIVE_UP_S):
                reader, writer = await asyncio.open_connection(CLIENT, port, local_addr=(ATTACKER, 0))
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


# --- all of it ---------------------------------------------------------------------------------------------

ATTACKS = ("silent", "half-open", "half a body", "header flood", "one long header", "slow read")


def main():
    """Run what was asked for; 1 if the daemon did not survive it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=3000)
    parser.add_argument("--measured-s", type=float, default=15.0)
    parser.add_argument("--malformed", type=int, default=10_000, help="on each of the two ports")
    parser.add_argument("--only", choices=(*ATTACKS, "malformed"), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon")
    arguments = parser.parse_args()
    wanted = arguments.only or (*ATTACKS, "malformed")
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("log.level=warning", *arguments.set))
        try:
            _all(daemon, wanted, arguments)
        finally:
            begun_s = time.monotonic()
            code = daemon.stop() if daemon.is_up else "dead"
            print(f"\nstopped in {time.monotonic() - begun_s:.1f} s, exit code {code}; log {len(daemon.log)} bytes")
            for line in daemon.log.splitlines()[-8:]:
                print("   ", line[:200])
    return 0 if code == 0 else 1


def _all(daemon, wanted, arguments):
    made = daemon.admin("POST", "/api/v1/tenants", json={"name": "mallory", "max_in_flight": 8})
    assert made.status_code == 201, made.text
    issued = daemon.admin("POST", "/api/v1/tenants/mallory/keys", json={})
    attacker_key = issued.json()["secret"]
    print(
        "| attack | requests | failed | TTFT p50 ms | TTFT p99 ms | /healthz p99 ms | worst | failed | RSS MiB | sockets; still open |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    port = urlsplit(daemon.data_url).port
    asyncio.run(_measure(daemon, daemon.key, 3.0, arguments.seed))
    _row("none", asyncio.run(_measure(daemon, daemon.key, arguments.measured_s, arguments.seed)), daemon)
    for name in (name for name in wanted if name != "malformed"):
        stop, result = multiprocessing.Event(), multiprocessing.Queue()
        attacker = multiprocessing.Process(
            target=_attacker,
            args=(name, port, attacker_key, daemon.model, arguments.connections, stop, result),
        )
        attacker.start()
        time.sleep(1.0)
        seen = asyncio.run(_measure(daemon, daemon.key, arguments.measured_s, arguments.seed))
        sockets = _sockets(daemon.process.pid)
        stop.set()
        outcome = result.get(timeout=120)
        attacker.join()
        _row(name, seen, daemon, f"{sockets}; {outcome}")
        time.sleep(1.0)
    if "malformed" in wanted:
        for plane in (daemon.data_url, daemon.admin_url):
            began_s = time.monotonic()
            statuses = asyncio.run(
                _send_malformed(urlsplit(plane).port, arguments.seed, arguments.malformed, daemon.key.encode())
            )
            print(
                f"malformed to {'data' if plane == daemon.data_url else 'admin'}: {statuses}, "
                f"{time.monotonic() - began_s:.0f} s, RSS {_rss_mib(daemon.process.pid):.0f} MiB"
            )
        _row("none, after", asyncio.run(_measure(daemon, daemon.key, 5.0, arguments.seed)), daemon)
        secrets = [daemon.token, daemon.key]
        print("secrets in the log:", sum(daemon.log.count(secret) for secret in secrets))


if __name__ == "__main__":
    sys.exit(main())
