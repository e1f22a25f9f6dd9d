"""Connections without a good key, made anew as fast as they are closed, in a process of its own.

`wrong_keys.py PORT COUNT PATH ADDRESS...` goes on until it is ended; what each sends is `ATTACK` of the
environment: `keys` (one wrong key after the other), `silent`, `half` or `huge` (half a head, one of 64 KiB).
Others have the CPU before it, since an attacker elsewhere has its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys


async def attack(port: int, path: str, source: str) -> None:
    """One connection after the other, each with one wrong key after the other."""
    start = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head = {
        "keys": f"{start}Authorization: Bearer pdm_wrong\r\n\r\n",
        "silent": "",
        "half": start,
        "huge": f"{start}a: {'b' * 65536}\r\n\r\n",
    }[os.environ.get("ATTACK", "keys")].encode()
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        except OSError:
            await asyncio.sleep(0.01)
            continue
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                writer.write(head)
                if not await reader.read(4096):
                    break
        writer.transport.abort()


async def main(port: int, count: int, path: str, sources: list[str]) -> None:
    """All of them, by turns of the addresses."""
    attacks = [attack(port, path, sources[number % len(sources)]) for number in range(count)]
    print("begun", flush=True)
    await asyncio.gather(*attacks)


if __name__ == "__main__":
    if os.sched_getscheduler(0) == os.SCHED_RR:  # as the daemon and its clients, which come before it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    else:
        os.nice(15)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
