"""2,000 idle connections and 500 streams at once, and what clients that read nothing for a minute cost.

    python tests/lab many-streams [--idle 2000] [--streams 500] [--unread 100] [--seconds 60]

A daemon of its own on loopback; four clients that behave and /healthz are measured alone and beside each.
The emulated engine decodes 256 requests at once: beside 240 streams the clients' answers can also be decoded,
of 500 the rest comes by turns, as each stream that ends is followed by another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_process import Daemon
from hostile import _forget_peak, _memory_mib, _p99
from hostile_network.clients import measure

PEER = "127.0.0.2"
HEADS = ("", "requests", "failed", "TTFT p99 ms", "/healthz p99 ms", "RSS MiB", "peak MiB", "others")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--decoding", type=int, default=240, help="streams that all decode at once")
    parser.add_argument("--unread", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=100, help="of each stream that is read")
    parser.add_argument("--profile", default="h200-codellama-34b", help="of the emulated engine")
    parser.add_argument("--seconds", type=float, default=60.0)
    wanted = parser.parse_args()
    settings = (
        "log.level=warning",
        "http.write_timeout_s=600",
        f"http.keep_alive_s={2 * wanted.seconds + 60}",
        "data.max_connections_per_peer=4096",
        f"engine.profile={wanted.profile}",
    )
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=settings)
        try:
            slo = {
                "ttft_fixed_ms": 60_000,
                "ttft_per_1k_new_tokens_ms": 1000,
                "tbt_ms": 1000,
                "attainment_ratio": 0.9,
            }
            body = {"name": "many", "max_in_flight": wanted.streams + wanted.unread, "slo": slo}
            assert daemon.admin("POST", "/api/v1/tenants", json=body).is_success
            key = daemon.admin("POST", "/api/v1/tenants/many/keys", json={}).json()["secret"]
            print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
            asyncio.run(measure(daemon, 3.0, 1))
            _forget_peak(daemon.process.pid)
            _tell("alone", daemon, asyncio.run(measure(daemon, wanted.seconds / 2, 1)))
            for streams in (wanted.decoding, wanted.streams):
                name = f"{wanted.idle} idle, {streams} streams"
                _beside(name, daemon, key, wanted.seconds, wanted.idle, streams, wanted.tokens)
            _beside(f"{wanted.unread} unread streams", daemon, key, wanted.seconds, 0, wanted.unread, None)
            _tell("after", daemon, asyncio.run(measure(daemon, 5.0, 1)))
        finally:
            code = daemon.stop()
    print(f"load {os.getloadavg()[0]:.1f}; exit code {code}")
    return code


def _beside(name, daemon, key, seconds, idle, streams, tokens_each):
    ready, stop, told = multiprocessing.Event(), multiprocessing.Event(), multiprocessing.Queue()
    work = (urlsplit(daemon.data_url).port, key, daemon.model, idle, streams, tokens_each, ready, stop, told)
    others = multiprocessing.Process(target=_others, args=work)
    _forget_peak(daemon.process.pid)
    others.start()
    ready.wait(120)
    seen = asyncio.run(measure(daemon, seconds, 1))
    rss = _memory_mib(daemon.process.pid, "VmRSS")
    stop.set()
    _tell(name, daemon, seen, rss=rss, left=told.get(timeout=120))
    others.join()
    time.sleep(2.0)


def _tell(name, daemon, seen, *, rss=None, left=""):
    ttfts, probes = ([value for value in values if value is not None] for values in seen)
    rss = _memory_mib(daemon.process.pid, "VmRSS") if rss is None else rss
    cells = (
        *(name, len(seen[0]), len(seen[0]) - len(ttfts)),
        *(f"{_p99(ttfts) * 1e3:.0f}", f"{_p99(probes) * 1e3:.0f}"),
        *(f"{rss:.0f}", f"{_memory_mib(daemon.process.pid, 'VmHWM'):.0f}", left),
    )
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _others(port, key, model, idle, streams, tokens_each, ready, stop, told):
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    told.put(asyncio.run(_hold(port, key, model, idle, streams, tokens_each, ready, stop)))


async def _hold(port, key, model, idle, streams, tokens_each, ready, stop):
    """Keep them; how many were still open at the end, whole answers, and events that were read."""
    kept, tokens, whole, broken = [], 0, 0, 0
    is_read = tokens_each is not None
    for _ in range(idle):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(PEER, 0))
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        kept.append((reader, writer))
    fields = {
        "model": model,
        "prompt": "x",
        "max_tokens": tokens_each or 20_000,
        "ignore_eos": True,
        "stream": True,
    }
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def read(reader, writer):
        """One stream after the other on a connection that is kept."""
        nonlocal tokens, whole, broken
        try:
            while True:
                end = b""
                while b"[DONE]" not in end:
                    if not (part := await reader.read(65536)):
                        return
                    tokens += part.count(b"data: ")
                    end = (end + part)[-64:]
                await reader.readuntil(b"0\r\n\r\n") if not end.endswith(b"0\r\n\r\n") else None
                whole += 1
                writer.write(request)
        finally:
            broken += not stop.is_set()

    reading = []
    for _ in range(streams):
        end = socket.socket()
        end.setblocking(False)
        if not is_read:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.bind((PEER, 0))
        await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(end, request)
        if is_read:
            reader, writer = await asyncio.open_connection(sock=end)
            kept.append((reader, writer))
            reading.append(asyncio.create_task(read(reader, writer)))
        else:
            kept.append(end)
    ready.set()
    while not stop.is_set():  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.2)
    closed = sum(reader.at_eof() for reader, _ in kept[:idle])
    for task in reading:
        task.cancel()
    return f"{idle - closed} idle and {streams - broken} streams open, {whole} whole, {tokens} events"


if __name__ == "__main__":
    sys.exit(main())
