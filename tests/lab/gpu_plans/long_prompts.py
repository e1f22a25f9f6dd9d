"""Prompts that memory holds whole, and prompts that it does not, beside others that decode (decision 0012).

    python tests/lab long-prompts --results RESULTS.jsonl

Short requests arrive all the time, and among them one long prompt: under each policy one a little shorter and
one longer than the limit that the engine measured while warming up. The layers of the model are few, since
memory holds one layer's activations at a time, whatever their number. The exit code is 3 unless every request
ended with all of its tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_plans.slo_change import load
from gpu_servers.linked import linked, steps_by
from gpu_servers.model_folder import SHAPES
from gpu_servers.options import RunOptions, new_parser, parse_run, whole_numbers
from gpu_servers.outcome import kept_and_printed
from gpu_servers.shapes import shape_model
from pdmuxd.daemon.bench.arms import Arm, split_names
from pdmuxd.daemon.bench.load.client import Seen, send_all
from pdmuxd.daemon.bench.load.score import quantile
from pdmuxd.daemon.bench.load.workload import BLOCK_TOKENS, Request
from pdmuxd.daemon.bench.results import build
from pdmuxd.daemon.bench.servers.nvidia import gpu_name, used_bytes
from pdmuxd.daemon.bench.servers.server import ArmError

_CONFIG = {"num_hidden_layers": 8, "max_position_embeddings": 524288}
_LIMIT = re.compile(r"prompts of more than (\d+) new tokens are prefilled in chunks")
_LONG_AT_S = 2.0
_LONG_OUTPUT_TOKENS = 16
_AROUND = (0.9, 1.3)
"""Of the limit."""
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    model: str
    engine: str
    policies: list[str]
    tokens: list[int] | None
    rate: float


def requests_of(options: Options, tokens: int, name: str) -> tuple[list[Request], int]:
    """Short ones and, in order of arrival, the long one; its place among them."""
    short = load(options.rate, options.duration_s, input_tokens=200, output_tokens=100)
    place = sum(request.at_s < _LONG_AT_S for request in short)
    long = Request(
        at_s=_LONG_AT_S,
        input_tokens=tokens,
        new_tokens=tokens,
        output_tokens=_LONG_OUTPUT_TOKENS,
        blocks=tuple(f"{name}/{i}" for i in range(-(-tokens // BLOCK_TOKENS))),
    )
    return [*short[:place], long, *short[place:]], place


def limit_in(log: Path) -> int | None:
    """The longest prompt that the engine prefills whole, as it said; None if it has no limit."""
    found = _LIMIT.findall(log.read_text(errors="replace"))
    return int(found[-1]) if found else None


@contextlib.asynccontextmanager
async def watching_memory() -> AsyncIterator[list[int]]:
    """Bytes in use on the GPU that this process may use, looked at all the time until the block ends."""
    found = [used_bytes()]

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            found.append(await asyncio.to_thread(used_bytes))

    task = asyncio.create_task(look())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(options: Options, folder: Path) -> dict[str, Any]:
    """Start the server, ask; what was seen. Raises: ServerError, ArmError."""
    arm = Arm(name=f"{options.engine}:{options.policies[0]}")
    model = shape_model(options.model, options.work / "long", _CONFIG | options.config)
    log = options.log_dir / "long.log"
    log.unlink(missing_ok=True)
    async with linked(arm, options, model=model, folder=folder, log=log) as (base_url, link):
        limit = limit_in(log)
        runs = []
        for policy, tokens in cases(options, limit):
            await link.set(policy=policy, tbt_ms=50.0)
            link.reset()
            name = f"{policy}-{tokens}"
            requests, place = requests_of(options, tokens, name)
            async with watching_memory() as memory:
                seen = await send_all(
                    base_url,
                    requests,
                    vocab=model.vocab,
                    tenants=True,
                    drain_s=options.drain_s,
                    name=name,
                )
            runs.append(run_of(policy, seen, place) | {"memory_bytes": max(memory)})
            runs[-1]["steps"] = steps_by(link.report()["steps"], parts=2)
    return {
        "what": "long_prompts",
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": gpu_name(),
        "build": build(),
        "limit_tokens": limit,
        "runs": runs,
    }


def cases(options: Options, limit: int | None) -> Iterator[tuple[str, int]]:
    """Each policy with each length. Raises: ArmError if none is known."""
    lengths = options.tokens or [int(limit * ratio) for ratio in _AROUND if limit is not None]
    if not lengths:
        raise ArmError("the engine told no limit (it has none on a CPU): give --tokens")
    yield from ((policy, tokens) for policy in options.policies for tokens in lengths)


def run_of(policy: str, seen: list[Seen], place: int) -> dict[str, Any]:
    """What became of the long one and of the others."""
    long, others = seen[place], [one for number, one in enumerate(seen) if number != place]
    gaps_s = [gap for one in others for gap in one.gaps_s]
    return {
        "policy": policy,
        "tokens": long.request.input_tokens,
        "ttft_s": long.ttft_s,
        "outcomes": dict(Counter(one.outcome for one in seen)),
        "errors": sorted({one.error for one in seen if one.error})[:5],
        "gap_p99_ms": 1e3 * quantile(gaps_s, 0.99) if gaps_s else None,
        "gap_longest_ms": 1e3 * max(gaps_s) if gaps_s else None,
    }


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    said = [f"prefilled whole: up to {found['limit_tokens'] or 'any number of'} tokens"]
    for run in found["runs"]:
        first = "no token" if run["ttft_s"] is None else f"first token after {run['ttft_s']:.1f} s"
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(run["outcomes"].items()))
        gaps = (
            "" if run["gap_p99_ms"] is None else f"{run['gap_p99_ms']:.0f} / {run['gap_longest_ms']:.0f} ms"
        )
        said.append(
            f"{run['policy']}, {run['tokens']} tokens: {first}; {outcomes}; "
            f"others' gaps, p99 / longest: {gaps}; "
            f"memory in use {run['memory_bytes'] / 2**30:.1f} GiB; {run['steps']}"
        )
        said += [f"  error: {error}" for error in run["errors"]]
    return said


def is_met(found: dict[str, Any]) -> bool:
    """Everyone was served, the long ones too."""
    return bool(found["runs"]) and all(set(run["outcomes"]) == {"done"} for run in found["runs"])


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("long-prompts", __doc__)
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--engine", choices=("ours", "emulator"), default="ours")
    parser.add_argument("--policies", type=split_names, default=["static:96,36", "auto"])
    parser.add_argument(
        "--tokens", type=whole_numbers, help="of the long prompts; 0.9 and 1.3 of the limit, unless given"
    )
    parser.add_argument("--rate", type=float, default=4.0, help="short requests per second")
    return parse_run(parser, argv, Options, duration_s=15.0, drain_s=60.0)


def main(argv: list[str] | None = None) -> int:
    """Measure, keep, print."""
    options = options_of(argv)
    return kept_and_printed(partial(measure, options), options.results, lines=lines, is_met=is_met)
