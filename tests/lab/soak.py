"""Steady load on a whole daemon with the emulated engine, and whether memory and descriptors stay flat.

`python tests/lab soak --minutes 30 --rate 200`. Requests arrive by a seeded Poisson process, a third of them
streamed. Every 10 s the daemon's and the engine's memory (RSS) and descriptors are read; flat is: the mean of
the last quarter is within 5% and 2 MiB, and 8 descriptors, of the second quarter's. The first quarter fills
caches, rings and pools. Exits with 1 if it is not flat or a request fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import aiohttp
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_process import Daemon

SAMPLE_S = 10.0
SAMPLES_A_LINE = 6
MIB = 2**20
_CODE = re.compile(rb'"code": ?"(\w+)"')
_GROWTH_RATIO, _GROWTH_MIB, _GROWTH_DESCRIPTORS = 1.05, 2.0, 8


async def load(daemon: Daemon, *, rate: float, seconds: float, seed: int, seen: Counter[str]) -> None:
    """Requests without waiting for answers; what came of each is counted."""
    chance, url = random.Random(seed), f"{daemon.data_url}/v1/completions"
    connector = aiohttp.TCPConnector(limit=256)
    headers = {"Authorization": f"Bearer {daemon.key}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        def count(what: str, more: str = "") -> None:
            seen[what] += 1
            if what != "200":
                print(f"  {time.monotonic() - begun_s:.1f} s: {what} {more}".rstrip(), flush=True)

        async def ask(prompt: str, is_streamed: bool) -> None:
            body = {"model": daemon.model, "prompt": prompt, "max_tokens": 8, "stream": is_streamed}
            try:
                async with session.post(url, json=body) as answer:
                    text = await answer.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                count(type(error).__name__, str(error))
                return
            if answer.status != 200:
                code = _CODE.search(text)
                count(f"{answer.status} {code[1].decode() if code else ''}")
                return
            is_whole = not is_streamed or text.endswith(b"data: [DONE]\n\n")
            count("200" if is_whole else "cut", "" if is_whole else text[-200:].decode())

        begun_s, due_s = time.monotonic(), 0.0
        asked = set()
        while due_s < seconds:
            due_s += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, begun_s + due_s - time.monotonic()))
            task = asyncio.create_task(ask("word " * chance.randint(5, 200), chance.random() < 1 / 3))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.gather(*asked)


async def watch(
    processes: dict[str, psutil.Process],
    samples: list[dict[str, tuple[float, int]]],
    seen: Counter[str],
) -> None:
    """Sample until cancelled, and print every sixth sample."""
    print(
        "| minute | answers | failed | load | " + " | ".join(f"{name} MiB, fds" for name in processes) + " |"
    )
    while True:
        sample = {name: (each.memory_info().rss / MIB, each.num_fds()) for name, each in processes.items()}
        if len(samples) % SAMPLES_A_LINE == 0:
            cells = [f"{mib:.1f}, {count}" for mib, count in sample.values()]
            answers = f"{sum(seen.values())} | {sum(seen.values()) - seen['200']} | {os.getloadavg()[0]:.0f}"
            print(f"| {len(samples) // SAMPLES_A_LINE} | {answers} | {' | '.join(cells)} |", flush=True)
        samples.append(sample)
        await asyncio.sleep(SAMPLE_S)


async def soak(daemon: Daemon, *, rate: float, seconds: float, seed: int) -> bool:
    """Whether it held."""
    processes = {
        "daemon": psutil.Process(daemon.process.pid),
        "engine": psutil.Process(daemon.engine()["pid"]),
    }
    samples: list[dict[str, tuple[float, int]]] = []
    seen: Counter[str] = Counter()
    watching = asyncio.create_task(watch(processes, samples, seen))
    begun_s, cpu_s = time.monotonic(), processes["daemon"].cpu_times().user
    await load(daemon, rate=rate, seconds=seconds, seed=seed, seen=seen)
    took_s = time.monotonic() - begun_s
    watching.cancel()
    user_s = processes["daemon"].cpu_times().user - cpu_s
    print(
        f"{sum(seen.values())} answers in {took_s:.0f} s ({sum(seen.values()) / took_s:.0f}/s): {dict(seen)}"
    )
    print(f"the daemon used {user_s / took_s:.2f} of a core")
    held = set(seen) == {"200"}
    quarter = max(1, len(samples) // 4)
    for name in processes:
        for index, what in enumerate(("RSS MiB", "descriptors")):
            values = [sample[name][index] for sample in samples]
            before = statistics.mean(values[quarter : 2 * quarter])
            after = statistics.mean(values[-quarter:])
            most = before + _GROWTH_DESCRIPTORS if index else before * _GROWTH_RATIO + _GROWTH_MIB
            held = held and after <= most
            verdict = "flat" if after <= most else "NOT FLAT"
            print(
                f"{name} {what}: first {values[0]:.0f}, second quarter {before:.1f}, "
                f"last quarter {after:.1f}, {verdict}"
            )
    return held


def main() -> int:
    """Run it on a daemon of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=39)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("log.level=warning",))
        try:
            held = asyncio.run(soak(daemon, rate=asked.rate, seconds=60 * asked.minutes, seed=asked.seed))
        finally:
            daemon.stop()
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
