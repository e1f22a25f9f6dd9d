"""A daemon that gets the CPU only now and then: what it books is what its clients saw."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

REQUESTS = 100
STOPPED_S, RUNS_S = 0.5, 0.5


@contextlib.contextmanager
def short_of_cpu(pid):
    """Stop a process half of the time."""
    over = threading.Event()

    def alternate():
        while not over.wait(RUNS_S):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def first_token_s(daemon):
    """(id, seconds) from sending a request to when its first token came to the client's machine.

    By the kernel here too: that a client without the CPU reads it later is not the daemon's doing.
    """
    body = {"model": daemon.model, "prompt": "x " * 20, "max_tokens": 1, "stream": True, "ignore_eos": True}
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    url = httpx.URL(daemon.data_url)
    with socket.create_connection((url.host, url.port), timeout=60) as connection:
        began_s = time.monotonic()
        connection.sendall(head.encode() + payload)
        answer, first_s = b"", None
        while data := connection.recv(65536):
            came_s = time.monotonic() - kernel_age_s(connection)
            answer += data
            if first_s is None and b"data: {" in answer:
                first_s = came_s - began_s
    rid = next(
        line[14:] for line in answer.decode().lower().splitlines() if line.startswith("x-request-id: ")
    )
    return rid, first_s


def kernel_age_s(connection):
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 56)
    return struct.unpack_from("=I", info, 52)[0] / 1000


FLOOD = """
import asyncio, sys, aiohttp
url, key, model = sys.argv[1:]

async def one(session):
    while True:
        body = {"model": model, "prompt": "y " * 50, "max_tokens": 16, "stream": True}
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            await answer.read()

async def main():
    session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"})
    await asyncio.gather(*(one(session) for _ in range(60)))

asyncio.run(main())
"""


@contextlib.contextmanager
def flooded(daemon):
    """60 clients of another tenant, each with the next request as soon as it has its answer."""
    daemon.admin("POST", "/api/v1/tenants", json={"name": "greedy"})
    key = daemon.admin("POST", "/api/v1/tenants/greedy/keys", json={}).json()["secret"]
    with subprocess.Popen([sys.executable, "-c", FLOOD, daemon.data_url, key, daemon.model]) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("load", ["alone", "beside a flood"])
def test_attainment_is_as_clients_saw_it_while_the_daemon_is_short_of_cpu(start, until, load):
    daemon = start()
    chance = random.Random(39)
    with contextlib.ExitStack() as stack:
        if load != "alone":
            stack.enter_context(flooded(daemon))
        stack.enter_context(short_of_cpu(daemon.process.pid))
        pool = stack.enter_context(ThreadPoolExecutor(REQUESTS))

        def ask(count):
            asked = []
            for _ in range(count):
                time.sleep(chance.uniform(0.0, 0.2))
                asked.append(pool.submit(first_token_s, daemon))
            return dict(each.result() for each in asked)

        # How fast the daemon is beside the flood depends on the machine: a fixed target may be met by none.
        target_s = max(STOPPED_S / 2, statistics.median(ask(REQUESTS // 4).values()))
        slo = {"ttft_fixed_ms": round(1000 * target_s), "ttft_per_1k_new_tokens_ms": 0, "tbt_ms": 10_000}
        path = "/api/v1/tenants/default/slo"
        assert daemon.admin("PUT", path, json={**slo, "attainment_ratio": 0.9}).status_code == 200
        until(lambda: daemon.admin("GET", path).json()["in_force"])
        seen = ask(REQUESTS)
    until(daemon.is_idle)
    ended = daemon.admin("GET", f"/api/v1/requests?limit={REQUESTS}&tenant=default").json()
    ended = ended["requests"]
    booked = {each["request_id"]: each for each in ended if each["request_id"] in seen}
    assert len(booked) == REQUESTS
    apart = sorted(abs(booked[rid]["delivered_ttft_ms"] / 1000 - seen_s) for rid, seen_s in seen.items())
    met_by_client = sum(1000 * seen_s <= slo["ttft_fixed_ms"] for seen_s in seen.values())
    met_by_daemon = sum(
        all(missed["target"] != "ttft" for missed in each["missed"]) for each in booked.values()
    )
    causes = {missed["cause"] for each in booked.values() for missed in each["missed"]}
    print(
        f"{load}, {slo['ttft_fixed_ms']} ms: in time: "
        f"{met_by_client} by clients, {met_by_daemon} by the daemon; "
        f"apart p50 {1000 * apart[50]:.0f} ms, p95 {1000 * apart[95]:.0f} ms; {causes}"
    )
    assert 10 < met_by_client < 90, "the load makes both"
    assert abs(met_by_client - met_by_daemon) <= REQUESTS / 100
    assert "loop_late" in causes
