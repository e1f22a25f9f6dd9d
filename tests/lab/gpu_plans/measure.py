"""Measure one model on one GPU, or on `--tp-size` GPUs that share it: a profile within a budget, then shapes
that the profile has not seen.

    python tests/lab measure --model llama-8b --budget-s 195 --check-s 45 --out DIR

measures as `pdmuxd profile run` does, and writes MODEL.profile.json (for `pdmuxd profile import`),
MODEL.predictors.json (for `run --predictors`) and MODEL.check.json (the unseen samples) to DIR.
A run that was broken off is gone on from, unless with --fresh.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpu_plans.sustained import WARM_S, keep, measure_all
from gpu_plans.unseen import report
from gpu_servers.measured_server import (
    MeasureOptions,
    add_measure_options,
    exit_code,
    plan_of,
)
from gpu_servers.options import new_parser, parse
from pdmuxd.daemon.profiling.check import check
from pdmuxd.daemon.profiling.engine import MeasuringEngine, measuring_engine
from pdmuxd.daemon.profiling.journal import NOTHING, Journal, journal_path, read_journal
from pdmuxd.daemon.profiling.run import Outcome, now_text, run_campaign
from pdmuxd.engine.core.errors import EngineError, ProfileError
from pdmuxd.engine.profiling.campaign import Progress
from pdmuxd.engine.profiling.document import to_json
from pdmuxd.engine.profiling.measurement import Target

_TELL_EVERY_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MeasureOptions):
    """The command line."""

    budget_s: float
    check_s: float
    sustained: bool = False
    fresh: bool = False


async def profile_it(engine: MeasuringEngine, target: Target, options: Options) -> Outcome:
    """A campaign that goes on from a broken-off one."""
    told_s = time.monotonic()

    def tell(progress: Progress, _elapsed_s: float) -> None:
        nonlocal told_s
        if time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            print(f"  {progress.measured} points, {progress.left_s:.0f} s left, {progress.what}", flush=True)

    path = journal_path(options.out, target.hello)
    earlier = NOTHING if options.fresh else read_journal(path)
    print(f"going on from {len(earlier.samples)} measurements", flush=True)
    with Journal(path=path, earlier=earlier, now=now_text()) as journal:
        outcome = await run_campaign(
            engine,
            target,
            name=options.model,
            budget_s=options.budget_s,
            stop=asyncio.Event(),
            tell=tell,
            journal=journal,
        )
    if outcome.broken_off is None:
        journal.remove()
    return outcome


async def measure(options: Options) -> bool:
    """Start the engine, measure, write, print; whether nothing broke it off. Raises: EngineError."""
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        async with measuring_engine(plan_of(options, Path(folder))) as engine:
            target = Target.of(await engine.hello(options.start_s))
            outcome = await profile_it(engine, target, options)
            profile = outcome.profile
            stem = options.out / options.model
            stem.with_name(f"{stem.name}.profile.json").write_bytes(to_json(profile))
            predictors = msgspec.json.encode(profile.predictors(1))
            stem.with_name(f"{stem.name}.predictors.json").write_bytes(predictors)
            seen = {sample.point for sample in profile.samples}
            checks = await check(engine, target, seen, options.check_s)
            stem.with_name(f"{stem.name}.check.json").write_bytes(msgspec.json.encode(checks))
            if options.sustained:
                await _sustained(engine, target, options)
    report(profile, checks)
    print(f"refused points: {outcome.refused}; broken off: {outcome.broken_off or 'no'}")
    return outcome.broken_off is None


async def _sustained(engine: MeasuringEngine, target: Target, options: Options) -> None:
    """Comes last: the profile stands whatever becomes of it."""
    try:
        print(keep(await measure_all(engine, target, WARM_S), options))
    except (EngineError, ProfileError) as error:
        print(f"FAILED: sustained: {error}")


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("measure", __doc__)
    add_measure_options(parser)
    parser.add_argument("--budget-s", type=float, default=195.0)
    parser.add_argument("--check-s", type=float, default=45.0)
    parser.add_argument("--sustained", action="store_true", help="as sustained, on the same server")
    parser.add_argument("--fresh", action="store_true", help="do not go on from a broken-off run")
    return parse(parser, argv, Options)


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if something broke it off."""
    return exit_code(measure(options_of(argv)))
