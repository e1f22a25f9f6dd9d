"""Everything that is to be measured on one GPU or two in a limited time, by itself.

    setsid nohup python tests/lab session --gpus 1 --budget-s 1750 --folder OUT >session.log 2>&1 &
    tail -f session.log
    python tests/lab session --gpus 1 --plan

Each step is another experiment, with a time limit and a log of its own. One that
fails, hangs or lacks something is ended with its servers, and the next begins. What is found is in OUT as it
comes; what is done there is not done again by the next call, and the matrix goes on where it was. Before each
step what it needs is looked for; `--check` does that alone, `--plan` says what would be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from experiments import command_of
from gpu_servers.options import new_parser
from gpu_session import checks
from gpu_session.place import Place, environment_of, last_words
from gpu_session.plan import PLANS, lanes, only, steps_of
from gpu_session.processes import alone_in
from gpu_session.records import MEASURED, Ended, Records
from gpu_session.scale import SCALES
from gpu_session.step import Lane, Need
from gpu_session.trial import tried
from gpu_session.work import Work
from pdmuxd.daemon.bench.runner import run_until_told

_TABLES_S = 60.0
SHOWN_BY_TABLES = ("micro-", "matrix", "tp2-", "arms-", "papers-")
"""Steps whose results have a table."""
FINE = MEASURED | {Ended.NO_TIME}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    gpus: int
    plan_name: str
    budget_s: float
    only: str
    again: bool
    engine: str
    start_s: float
    folder: Path
    traces: Path
    plan: bool
    check: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The steps that are named."""
        return tuple(name for name in self.only.split(",") if name)


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("session", __doc__)
    parser.add_argument("--gpus", type=int, choices=(1, 2), default=1, help="that it may use, one lane each")
    parser.add_argument(
        "--plan-name",
        choices=PLANS,
        help="`tp2`: two GPUs as one; `profiles`: of further models; else as --gpus says",
    )
    parser.add_argument("--budget-s", type=float, default=1750.0, help="nothing goes on for longer")
    parser.add_argument("--only", default="", help="these steps alone, with commas between them")
    parser.add_argument("--again", action="store_true", help="also what is done in the folder")
    parser.add_argument("--engine", choices=sorted(SCALES), default="gpu", help="or another, to try it")
    parser.add_argument("--start-s", type=float, default=200.0, help="what a server's start may take")
    parser.add_argument("--folder", type=Path, default=Path(".gpu/session"), help="for all results")
    parser.add_argument("--traces", type=Path, default=Path(".gpu/traces.json"))
    parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--check", action="store_true", help="look for what the steps need, and do nothing")
    found = parser.parse_args(argv)
    found.plan_name = found.plan_name or ("one", "two")[found.gpus - 1]
    options = Options(**vars(found))
    known = steps_of(options.plan_name, SCALES[options.engine])
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"--only {unknown[0]}: the steps of this plan are {', '.join(known)}")
    if not options.budget_s > 0:
        parser.error(f"--budget-s {options.budget_s:g}: above 0")
    return options


def lanes_of(options: Options) -> tuple[Lane, ...]:
    """What the command line asks for."""
    scale = SCALES[options.engine]
    plan = options.plan_name
    return tried(only(plan, options.names, scale) if options.names else lanes(plan, scale), options.engine)


def show(chosen: tuple[Lane, ...], done: set[str], budget_s: float) -> None:
    """Each step with the second at which it is expected to begin."""
    for lane in chosen:
        at_s = 0.0
        is_known = True
        for step in lane.steps:
            at = f"{at_s:5.0f} s" if is_known else "   then"
            text = f"{lane.name}  {at}  {step.name}: {step.plan} {' '.join(step.words)}"
            if step.name in done and not step.fills_s:
                print(f"{lane.name}     done  {step.name}")
            elif at_s + step.expected_s > budget_s:
                print(f"{text}: NO TIME, it takes {step.expected_s:.0f} s")
            else:
                takes_all = step.fills_s and at_s + step.takes_s > budget_s
                is_open = step.fills_s and (takes_all or math.isinf(step.most_s))
                end = " (as far as time allows)" if is_open else f": {step.takes_s:.0f} s"
                print(text + end)
                at_s += step.takes_s
                is_known = is_known and not is_open
        if is_known and lane.steps:
            print(f"{lane.name}  {at_s:5.0f} s  the end, of {budget_s:.0f} s")


async def check(chosen: tuple[Lane, ...], place: Place) -> bool:
    """Say of each step what is missing; whether nothing is."""
    fine, looks = True, checks.Checks(place.traces)
    for lane in chosen:
        environment = environment_of(lane, os.environ)
        for step in lane.steps:
            lacks = await looks.lacking(
                step.needs, environment=environment, gpus=len(lane.gpus), predictors=place.predictors()
            )
            fine = fine and lacks is None
            print(f"{lane.name}: {step.name}: {lacks or 'has what it needs'}", flush=True)
    needs = {need for lane in chosen for step in lane.steps for need in step.needs}
    if Need.SGLANG in needs:
        said = await checks.whole(os.environ, on_gpu=Need.GPU in needs)
        fine = fine and said is None
        print(f"SGLang's server as a whole: {said or 'can be started'}", flush=True)
        if warning := await checks.warned(os.environ):
            print(f"not needed, but the GPU's clock stays unknown: {warning}", flush=True)
    return fine


async def work_off(work: Work, chosen: tuple[Lane, ...]) -> None:
    """Everything, with a line a second."""
    telemetry_feeds = asyncio.create_task(work.tell())
    try:
        await work.all(chosen)
    finally:
        telemetry_feeds.cancel()
        await asyncio.gather(telemetry_feeds, return_exceptions=True)


def tables(place: Place, records: Records) -> str:
    """What became of each step, and everything that was found."""
    rows = ["| step | ended | s | said |", "|---|---|---:|---|"]
    rows += [
        f"| {one.step} | {one.ended} | {one.took_s:.0f} | {one.said[:150].replace('|', '/')} |"
        for one in records.last().values()
    ]
    found = ["\n".join(rows)]
    found += [
        f"### {name}\n\n```\n{said}\n```"
        for name in records.last()
        if not name.startswith(SHOWN_BY_TABLES) and (said := last_words(place.log(name)))
    ]
    if place.results.is_file():
        for name, *words in (["micro", "--show"], ["table"]):
            command = command_of(name, *words, str(place.results))
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = subprocess.run(
                    command, cwd=place.folder, capture_output=True, text=True, timeout=_TABLES_S, check=False
                )
                found.append(done.stdout.strip() or f"{name} failed: {done.stderr.strip()[-300:]}")
    return "\n\n".join(found)


def main(argv: list[str] | None = None) -> int:
    """Do what is asked; the exit code is 1 if a step did not end well."""
    options = options_of(argv)
    chosen = lanes_of(options)
    folder = options.folder.absolute()
    place = Place(folder=folder, traces=options.traces.absolute(), start_s=options.start_s)
    records = Records(folder)
    if options.plan:
        show(chosen, set() if options.again else records.done(), options.budget_s)
        return 0
    if options.check:
        return 0 if asyncio.run(check(chosen, place)) else 1
    place.rows.mkdir(parents=True, exist_ok=True)
    for lane in chosen:
        (folder / "logs" / lane.name.replace(" ", "")).mkdir(parents=True, exist_ok=True)
    before = len(records.all())
    done = frozenset() if options.again else frozenset(records.done())
    try:
        with alone_in(folder):
            work = Work(
                place=place,
                budget_s=options.budget_s,
                records=records,
                checks=checks.Checks(place.traces),
                done=done,
            )
            run_until_told(work_off(work, chosen))
            text = tables(place, records)
    except BlockingIOError:
        print(f"error: --folder {options.folder}: another session works in it", file=sys.stderr)
        return 2
    (folder / "tables.md").write_text(text + "\n")
    print(text, flush=True)
    return 0 if all(one.ended in FINE for one in records.all()[before:]) else 1
