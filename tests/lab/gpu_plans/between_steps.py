"""What the device does between two fused steps, from the traces of `run --profile FOLDER`:

    python tests/lab between-steps FOLDER/*.trace.json.gz

Of each trace: how long the device had nothing to do, in all and in waits long enough to be the host's, and
the time from the end of one fused step's graph to the begin of the next one's. `results` is the head of the
model and the choice of tokens; `forming` the next batch on the scheduler's stream, which waits for the step
before; `inputs` its copies to the graph.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp

from gpu_servers.options import RunOptions, new_parser
from pdmuxd.daemon.bench.load.score import quantile
from pdmuxd.daemon.bench.servers.server import ArmError

STEPS = 80
"""In a trace: about a second of them, 3 MB."""
WAIT_US = 50.0
"""Work that was launched in time follows the work before it within a few microseconds."""
_ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_FUSED = ("step[MIXED", "step[EXTEND")
_TO_HOST = "DtoH"


async def profile_run(base_url: str, options: RunOptions) -> None:
    """Let SGLang trace STEPS steps from the middle of a run on, if that is wanted. Raises: ArmError."""
    folder = options.profile
    if folder is None:
        return
    wanted = {
        "output_dir": str(folder),
        "num_steps": STEPS,
        "activities": ["CPU"] if options.cpu else ["CPU", "GPU"],
        "with_stack": False,
    }
    await asyncio.sleep(options.duration_s / 2.0)
    try:
        async with (
            aiohttp.ClientSession(base_url) as session,
            session.post("/start_profile", json=wanted) as answer,
        ):
            answer.raise_for_status()
    except aiohttp.ClientError as error:
        raise ArmError(f"no trace could be made: {error}") from error


@dataclass(frozen=True, slots=True)
class Work:
    """Something on the device, in microseconds."""

    begin_us: float
    end_us: float
    stream: int
    name: str
    graph: int | None
    """What launched it, if that was a graph."""


@dataclass(frozen=True, slots=True)
class Between:
    """Microseconds from one fused step's graph to the next one's."""

    results_us: float
    forming_us: float
    inputs_us: float

    @property
    def all_us(self) -> float:
        """From graph to graph."""
        return self.results_us + self.forming_us + self.inputs_us


@dataclass(frozen=True, slots=True)
class Found:
    """Of one trace."""

    span_ms: float
    idle_ms: float
    waiting_ms: float
    """Of that, in waits of WAIT_US and more."""
    between: tuple[Between, ...]


def read(path: Path) -> Found:
    """Raises: OSError, ValueError or KeyError for a file that is no trace."""
    with gzip.open(path, "rt") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    launches = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") == "cuda_runtime" and "GraphLaunch" in event["name"]
    }
    steps = [event for event in events if event.get("cat") == "user_annotation" and "step[" in event["name"]]
    fused = {graph for graph, at_us in launches.items() if _step_at(steps, at_us).startswith(_FUSED)}
    work = sorted(_works(events, launches), key=lambda one: one.begin_us)
    if not work:
        raise ValueError("nothing ran on the device")
    waits = list(_waits_us(work))
    return Found(
        span_ms=(max(one.end_us for one in work) - work[0].begin_us) / 1e3,
        idle_ms=sum(waits) / 1e3,
        waiting_ms=sum(wait for wait in waits if wait >= WAIT_US) / 1e3,
        between=tuple(_between(work, fused)),
    )


def _works(events: Sequence[dict[str, Any]], launches: dict[int, float]) -> Iterator[Work]:
    for event in events:
        if event.get("cat") in _ON_DEVICE:
            by = event["args"].get("correlation")
            begin_us = float(event["ts"])
            yield Work(
                begin_us=begin_us,
                end_us=begin_us + float(event["dur"]),
                stream=int(event["args"]["stream"]),
                name=event["name"],
                graph=by if by in launches else None,
            )


def _step_at(steps: Sequence[dict[str, Any]], at_us: float) -> str:
    """The innermost that was launched then; none is empty."""
    around = [step for step in steps if step["ts"] <= at_us <= step["ts"] + step["dur"]]
    return str(max(around, key=lambda step: step["ts"])["name"]) if around else ""


def _waits_us(work: Sequence[Work]) -> Iterator[float]:
    """Stretches in which nothing ran on any stream."""
    end_us = work[0].end_us
    for one in work:
        if one.begin_us > end_us:
            yield one.begin_us - end_us
        end_us = max(end_us, one.end_us)


def _between(work: Sequence[Work], fused: set[int]) -> Iterator[Between]:
    """Of fused steps that follow each other with nothing but small work between them."""
    graphs: dict[int, list[Work]] = {}
    small: list[Work] = []
    for one in work:
        (small if one.graph is None else graphs.setdefault(one.graph, [])).append(one)
    begins_us = [one.begin_us for one in small]
    for last, following in pairwise(graphs):
        if last not in fused or following not in fused:
            continue
        end_us = max(one.end_us for one in graphs[last])
        first = graphs[following][0]
        between = small[bisect_left(begins_us, end_us) : bisect_right(begins_us, first.begin_us)]
        forming = [
            one
            for one in between
            if one.end_us <= first.begin_us and one.stream != first.stream and _TO_HOST not in one.name
        ]
        if not forming:
            continue
        formed_us = max(one.end_us for one in forming)
        yield Between(
            results_us=forming[0].begin_us - end_us,
            forming_us=formed_us - forming[0].begin_us,
            inputs_us=first.begin_us - formed_us,
        )


def lines(name: str, found: Found) -> list[str]:
    """What is printed of a trace."""
    idle = f"idle {found.idle_ms:.1f} of {found.span_ms:.0f} ms, {found.waiting_ms:.1f} of it waiting"
    said = [f"{name}: {idle}"]
    if found.between:
        p10, p50, p90 = (quantile([one.all_us for one in found.between], q) for q in (0.1, 0.5, 0.9))
        said.append(
            f"  from one fused step to the next, {len(found.between)} times: p50 {p50:.0f} us, "
            f"p10 {p10:.0f}, p90 {p90:.0f}; results {_median_us(found, 'results_us')}, "
            f"forming {_median_us(found, 'forming_us')}, inputs {_median_us(found, 'inputs_us')}"
        )
    return said


def _median_us(found: Found, part: str) -> str:
    return f"{quantile([getattr(one, part) for one in found.between], 0.5):.0f}"


def main(argv: list[str] | None = None) -> int:
    """Print; exit code 2 for a file that is no trace of a device."""
    parser = new_parser("between-steps", __doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    for path in parser.parse_args(argv).traces:
        try:
            found = read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{path}: no trace of a device: {error}", file=sys.stderr)
            return 2
        print("\n".join(lines(path.name, found)))
    return 0
