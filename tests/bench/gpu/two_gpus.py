"""Two GPUs, one copy of the model: minutes of aborts and policy changes, and that the ranks stay together.

    PYTHONPATH=SITE python3 tests/bench/gpu/two_gpus.py --model llama-8b --duration-s 300

Requests of a cell arrive while a share of the clients goes away in the middle of its answer and another
policy comes into force every few seconds, each with another TBT target. It passes if the server is up at the
end and idle, each request has ended as it should (with all of its tokens, or left by its client), and every
change was acknowledged; else the exit code is 3. The table of a cell follows with
`matrix.py --tp-size 2 --models llama-8b --only-cells conv:20`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

import arms as arms_module
from arms import Arm
from bench import gpu_name
from client import Seen, send_all
from linked import linked
from model_folder import SHAPES, write_model_folder
from options import add_common, numbers
from outcome import kept_and_printed
from predicting import predictors
from runs import build
from workload import Cell
from workload import build as build_requests

_IDLE_S = 30.0


async def change(link: Any, options: argparse.Namespace, changes: list[float]) -> None:
    """Another policy and target every few seconds, until cancelled; notes the seconds of each."""
    loaded = predictors(options.predictors, options.model)
    for policy, tbt_ms in itertools.cycle(itertools.product(options.policies, options.tbt_ms)):
        began_s = time.monotonic()
        await link.set(policy=policy, tbt_ms=tbt_ms, predictors=loaded)
        changes.append(time.monotonic() - began_s)
        await asyncio.sleep(options.change_s)


async def idle(link: Any) -> bool:
    """Whether the engine comes to say that it has nothing to do."""
    end_s = time.monotonic() + _IDLE_S
    while time.monotonic() < end_s:
        link.stats = None
        await asyncio.sleep(0.5)
        if link.stats is not None and not (link.stats.running or link.stats.waiting or link.stats.prefilling):
            return True
    return False


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the server, load it, change it; what was seen. Raises: ServerError."""
    arm = arm_of(options)
    model = write_model_folder(options.model, options.work / options.model, **options.config)
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
                vocab=int(SHAPES[options.model]["vocab_size"]),
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


def arm_of(options: argparse.Namespace) -> Arm:
    """Ours, or the emulated engine to try the script."""
    return Arm(name=f"{options.engine}:{options.policies[0]}")


def result(
    options: argparse.Namespace,
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


def options_of(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--engine", choices=("ours", "emulator"), default="ours")
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--cell", type=Cell.parse, default=Cell(workload="conv", rate=20.0))
    parser.add_argument(
        "--policies",
        type=arms_module.split_names,
        default=["auto", "muxwise", "static:96,36", "chunked:512"],
    )
    parser.add_argument("--tbt-ms", type=numbers, default=[50.0, 20.0])
    parser.add_argument("--change-s", type=float, default=3.0, help="between two changes")
    parser.add_argument("--leave-ratio", type=float, default=0.2, help="of clients that leave early")
    return add_common(parser, argv, duration_s=300.0, drain_s=60.0)


def main() -> int:
    """Measure, keep, print."""
    options = options_of()
    return kept_and_printed(partial(measure, options), options.results, lines=lines, is_met=is_met)


if __name__ == "__main__":
    sys.exit(main())
