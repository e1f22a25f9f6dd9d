"""Whether work takes longer on a GPU that is kept at it, and what its clock is meanwhile.

    python tests/lab sustained --model llama-8b --out DIR

A campaign measures each point after a pause; serving gives the device none, and a GPU at its power limit
lowers its clock. Each shape is measured after the same work has run for each of `--warm-s`. Prints a table,
and writes MODEL.sustained.json to DIR: one row per shape and time.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpu_servers.measured_server import (
    MeasureOptions,
    add_measure_options,
    exit_code,
    plan_of,
)
from gpu_servers.options import new_parser, parse
from pdmuxd.daemon.profiling.engine import MeasuringEngine, measuring_engine
from pdmuxd.engine.profiling.measurement import Point, Sample, Target

REPEATS = 5
WARM_S = [0.0, 0.05, 0.2, 1.0, 3.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MeasureOptions):
    """The command line."""

    warm_s: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One shape after so long at work."""

    what: str
    sms: int
    warm_s: float
    seconds: float
    """Median of REPEATS."""
    clock_mhz: int | None


def points_of(target: Target) -> list[tuple[str, Point]]:
    """What serving does most: chunks with a decode batch, and prefill on all SMs and on a group's."""
    total = target.hello.total_sms
    sizes = [total, max((sms for sms in target.prefill_sizes if sms < total), default=total)]
    alone = [
        (f"prefill {tokens}", Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((tokens, 0),)))
        for sms in dict.fromkeys(sizes)
        for tokens in (1024, 4096)
    ]
    chunk = Point(mode="fused", prefill_sms=total, decode_sms=total, prefill=((960, 0),), decode=(1000,) * 64)
    return [*alone, ("fused 960 + 64", chunk)]


async def measure_all(engine: MeasuringEngine, target: Target, warm_s: list[float]) -> list[Row]:
    """Every shape after every time at work, the shortest first. Raises: EngineError, ProfileError."""
    rows: list[Row] = []
    for what, point in points_of(target):
        for warm in warm_s:
            asked = point.to_measure(len(rows), REPEATS, warm_s=warm)
            answer = await engine.measure(asked)
            sample = Sample.of(point, answer)
            rows.append(
                Row(
                    what=what,
                    sms=sample.sms,
                    warm_s=warm,
                    seconds=sample.seconds,
                    clock_mhz=answer.gpu_clock_mhz,
                )
            )
    return rows


def table(rows: list[Row]) -> str:
    """Each shape against itself after the shortest time at work."""
    first = {(row.what, row.sms): row.seconds for row in reversed(rows)}
    lines = [
        "| work | SMs | at work for | takes | against rested | SM clock |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        clock = f"{row.clock_mhz} MHz" if row.clock_mhz is not None else "-"
        ratio = row.seconds / first[row.what, row.sms]
        took = f"{1e3 * row.seconds:.2f} ms | {ratio:.3f}"
        lines.append(f"| {row.what} | {row.sms} | {row.warm_s:g} s | {took} | {clock} |")
    return "\n".join(lines)


def keep(rows: list[Row], options: MeasureOptions) -> str:
    """Write them; the table."""
    kept = json.dumps([dataclasses.asdict(row) for row in rows], indent=1)
    (options.out / f"{options.model}.sustained.json").write_text(kept + "\n")
    return table(rows)


async def measure(options: Options) -> bool:
    """Start the engine, measure, write, print. Raises: EngineError, ProfileError."""
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        async with measuring_engine(plan_of(options, Path(folder))) as engine:
            target = Target.of(await engine.hello(options.start_s))
            rows = await measure_all(engine, target, sorted(options.warm_s))
    print(keep(rows, options))
    return True


def main(argv: list[str] | None = None) -> int:
    """The command line, then all of it."""
    parser = new_parser("sustained", __doc__)
    add_measure_options(parser)
    parser.add_argument("--warm-s", type=float, nargs="+", default=WARM_S)
    return exit_code(measure(parse(parser, argv, Options)))
