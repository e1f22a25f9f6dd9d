"""Two GPUs, one copy of the model: minutes of aborts and policy changes, and that the ranks stay together.

    python tests/lab two-gpus --model llama-8b --duration-s 300

Requests of a cell arrive while a share of the clients goes away in the middle of its answer and another
policy comes into force every few seconds, each with another TBT target. It passes if the server is up at the
end and idle, each request has ended as it should (with all of its tokens, or left by its client), and every
change was acknowledged; else the exit code is 3. The table of a cell follows with
`python tests/lab matrix --tp-size 2 --models llama-8b --only-cells conv:20`.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_servers.linked import linked
from gpu_servers.model_folder import SHAPES
from gpu_servers.options import RunOptions, new_parser, numbers, one_cell, parse_run
from gpu_servers.outcome import kept_and_printed
from gpu_servers.shapes import shape_model
from pdmuxd.daemon.bench.arms import Arm, split_names
from pdmuxd.daemon.bench.load.client import Seen, send_all
from pdmuxd.daemon.bench.load.workload import Cell
from pdmuxd.daemon.bench.load.workload import build as build_requests
from pdmuxd.daemon.bench.results import build
from pdmuxd.daemon.bench.servers.link import Link
from pdmuxd.daemon.bench.servers.nvidia import gpu_name
from pdmuxd.daemon.bench.servers.predicting import predictors

_IDLE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    model: str
    engine: str
    cell: Cell
    policies: list[str]
    tbt_ms: list[float]
    change_s: float


async def change(link: Link, options: Options, changes: list[float]) -> None:
    """Another policy and target every few seconds, until cancelled; notes the seconds of each."""
    loaded = predictors(options.predictors, options.model)
    for policy, tbt_ms in itertools.cycle(itertools.product(options.policies, options.tbt_ms)):
        began_s = time.monotonic()
        await link.set(policy=policy, tbt_ms=tbt_ms, predictors=loaded)
        changes.append(time.monotonic() - began_s)
        await asyncio.sleep(options.change_s)


async def idle(link: Link) -> bool:
    """Whether the engine comes to say that it has nothing to do."""
    end_s = time.monotonic() + _IDLE_S
    while time.monotonic() < end_s:
        link.stats = None
        await asyncio.sleep(0.5)
        if link.stats is not None and not (link.stats.running or link.stats.waiting or link.stats.prefilling):
            return True
    return False


async def measure(options: Options, folder: Path) -> dict[str, Any]:
    """Start the server, load it, change it; what was seen. Raises: ServerError."""
    arm = arm_of(options)
    model = shape_model(options.model, options.work, options.config)
    traces = json.loads(options.traces.read_text()) if options.traces.exists() else {}
    requests = build_requests(
        options.cell, traces, seed=1, duration_s=options.duration_s, leave_ratio=options.leave_ratio
    )
    log = options.log_dir / f"{options.model}-tp{options.tp_size}.log"
    server = linked(arm, options, model=model, folder=folder, log=log, tp_size=options.tp_size)
    async with server as (base_url, link):
        changes: list[float] = []
        # Sending comes first: its prompts are written before anything else can run here.
        sending = asyncio.create_task(
            send_all(
                base_url,
                requests,
                vocab=model.vocab,
                tenants=True,
                drain_s=options.drain_s,
                name="tp",
            )
        )
        changing = asyncio.create_task(change(link, options, changes))
        await asyncio.wait({changing, sending}, return_when=asyncio.FIRST_COMPLETED)
        refused = changing.exception() if changing.done() else None
        changing.cancel()
        seen = await sending
        await asyncio.gather(changing, return_exceptions=True)
        was_idle = await idle(link)
        report = link.report()
    return result(options, seen, changes, refused=str(refused or ""), was_idle=was_idle) | {"engine": report}


def arm_of(options: Options) -> Arm:
    """Ours, or the emulated engine to try the script."""
    return Arm(name=f"{options.engine}:{options.policies[0]}")


def result(
    options: Options,
    seen: Sequence[Seen],
    changes: Sequence[float],
    *,
    refused: str,
    was_idle: bool,
) -> dict[str, Any]:
    """What is kept."""
    return {
        "what": "two_gpus",
        "model": options.model,
        "tp_size": options.tp_size,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": gpu_name(),
        "build": build(),
        "duration_s": options.duration_s,
        "outcomes": dict(Counter(one.outcome for one in seen)),
        "errors": sorted({one.error for one in seen if one.error})[:5],
        "tokens": sum(one.tokens for one in seen),
        "changes": len(changes),
        "slowest_change_s": max(changes, default=None),
        "refused": refused,
        "was_idle": was_idle,
    }


def is_met(found: dict[str, Any]) -> bool:
    """Nothing went wrong, and there was something that could have."""
    ended = set(found["outcomes"]) <= {"done", "left"}
    tried = found["changes"] > 1 and found["outcomes"].get("done") and found["outcomes"].get("left")
    return bool(ended and tried and found["was_idle"] and not found["refused"])


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(found["outcomes"].items()))
    slowest = f"{1e3 * found['slowest_change_s']:.0f} ms" if found["changes"] else "-"
    return [
        f"{found['model']} on {found['tp_size']} GPUs, {found['duration_s']:g} s: requests: {outcomes}; "
        f"{found['tokens']} tokens; {found['changes']} policy changes, the slowest {slowest}",
        "idle at the end" if found["was_idle"] else "NOT IDLE AT THE END",
        *([f"REFUSED: {found['refused']}"] if found["refused"] else []),
        *(f"error: {error}" for error in found["errors"]),
    ]


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("two-gpus", __doc__)
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--engine", choices=("ours", "emulator"), default="ours")
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--cell", type=one_cell, default=Cell(workload="conv", rate=20.0))
    parser.add_argument(
        "--policies",
        type=split_names,
        default=["auto", "muxwise", "static:96,36", "chunked:512"],
    )
    parser.add_argument("--tbt-ms", type=numbers, default=[50.0, 20.0])
    parser.add_argument("--change-s", type=float, default=3.0, help="between two changes")
    parser.add_argument("--leave-ratio", type=float, default=0.2, help="of clients that leave early")
    return parse_run(parser, argv, Options, duration_s=300.0, drain_s=60.0)


def main(argv: list[str] | None = None) -> int:
    """Measure, keep, print."""
    options = options_of(argv)
    return kept_and_printed(partial(measure, options), options.results, lines=lines, is_met=is_met)
