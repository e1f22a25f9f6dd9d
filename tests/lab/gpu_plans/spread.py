"""One matrix over several GPUs of a machine: what is compared with each other runs on the same one.

A share is all arms of a model and a seed. Shares go to GPUs in the order of their worth, the next to whoever
is done first by what is expected, and each GPU has a process of its own, which sees no other.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import command_of
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.bench.servers.server import die_with_parent

Share = tuple[str, int]
"""Model and seed."""


def share_of(run: Run) -> Share:
    """What a run belongs to."""
    return run.model, run.seed


def shares(text: str) -> frozenset[Share]:
    """`MODEL:SEED`, with commas between them."""
    found = set()
    for word in text.split(","):
        model, _, seed = word.rpartition(":")
        if not model or not seed.isdecimal():
            raise argparse.ArgumentTypeError(f"{word!r}: MODEL:SEED, such as llama-8b:1")
        found.add((model, int(seed)))
    return frozenset(found)


def divide(ordered: Sequence[Run], gpus: int, cost_s: Callable[[Sequence[Run]], float]) -> list[list[Share]]:
    """For each GPU, its shares in their order; some GPUs may have none."""
    divided: list[list[Share]] = [[] for _ in range(gpus)]
    busy_s = [0.0] * gpus
    for share in dict.fromkeys(share_of(run) for run in ordered):
        first = busy_s.index(min(busy_s))
        divided[first].append(share)
        busy_s[first] += cost_s([run for run in ordered if share_of(run) == share])
    return divided


async def run_all(plan: str, words: Sequence[str], divided: Sequence[Sequence[Share]], logs: Path) -> int:
    """Run the plan once per GPU with its shares; the highest exit code."""
    tasks = [
        _run_one(plan, [*words, "--shares", ",".join(f"{m}:{s}" for m, s in own)], gpu, logs / f"gpu{gpu}")
        for gpu, own in enumerate(divided)
        if own
    ]
    return max(await asyncio.gather(*tasks), default=0)


async def _run_one(plan: str, words: Sequence[str], gpu: int, folder: Path) -> int:
    own = ["--log-dir", str(folder), "--work", str(folder / "models")]
    process = await asyncio.create_subprocess_exec(
        *command_of(plan, *words, *own),
        env=os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )
    if process.stdout is None:
        raise RuntimeError("a process without its pipe")
    async for text in process.stdout:
        print(f"gpu {gpu} {text.decode(errors='replace').rstrip()}", flush=True)
    return await process.wait()
