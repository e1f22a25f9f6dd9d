"""Measure everything that is to be compared, the most telling first, in as many sessions as it takes.

    python tests/lab matrix --budget-s 1200 --results RESULTS.jsonl

A session is one call. It goes on where the last one with the same --results ended, starts nothing that its
budget does not hold, and appends each result at once, so that a session that is cut off loses one run. With
`--plan` it prints what it would do, with the seconds, and does nothing. `table` prints the results, and
whether the anchor, which every session measures again for each of its models, agrees between sessions.
`--gpus 4` works on four GPUs of the machine at a time; all arms of a model and a seed stay on one of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpu_plans import spread
from gpu_plans.contenders import Out, out_of_contention
from gpu_plans.rounds import ANCHOR_ARM, ROUNDS, TABLES, Round
from gpu_servers.options import RunOptions, cells, new_parser, parse_run
from gpu_servers.runner import AHEAD_START_S, START_S, Runner, later_start_s
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.results import Run, done_in, read_runs
from pdmuxd.daemon.bench.runner import COLD_S, run_s, run_until_told


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    plan: bool = False
    table: str = "tables"
    models: str = ""
    rounds: int = len(ROUNDS)
    no_anchor: bool = False
    gpus: int = 1
    shares: frozenset[spread.Share] | None = None
    as_model: str | None = None
    only_arms: str | None = None
    only_cells: str | None = None


def anchor(rounds: Sequence[Round], model: str, tp_size: int) -> Run:
    """The run that every session with this model measures: on the first cell of its first round."""
    of_model = next(one for one in rounds if one.model == model)
    return Run(
        model=model,
        arm=Arm(name=ANCHOR_ARM),
        cell=cells(of_model.cells)[0],
        seed=1,
        tbt_ms=None,
        judged_ms=of_model.tbt_ms,
        tp_size=tp_size,
        is_anchor=True,
    )


def in_order(
    rounds: Sequence[Round],
    done: set[str],
    *,
    tp_size: int = 1,
    anchored: bool = True,
    out: Out = frozenset(),
) -> list[Run]:
    """What is left, in the order in which a session does it.

    Rounds keep their order; within one, the server that is up goes on first. A model whose anchor an earlier
    session has measured is anchored: with the first runs of the anchor's server, or before its own runs.
    Arms that are `out` of contention are left to rounds of every arm.
    """
    ordered: list[Run] = []
    planned = set(done)
    for one in rounds:
        left = [
            run
            for run in one.runs(tp_size)
            if not run.is_in(planned) and not (one.contenders and run.among(out))
        ]
        planned |= {run.name for run in left}
        servers = list(dict.fromkeys(run.server for run in left))
        if ordered and ordered[-1].server in servers:
            servers.remove(ordered[-1].server)
            servers.insert(0, ordered[-1].server)
        ordered += [run for server in servers for run in left if run.server == server]
    for model in dict.fromkeys(run.model for run in ordered):
        again = anchor(rounds, model, tp_size)
        if anchored and again.is_in(done):
            servers = [run.server for run in ordered]
            place = servers.index(again.server) if again.server in servers else _first(ordered, model)
            ordered.insert(place, again)
    return ordered


def _first(ordered: Sequence[Run], model: str) -> int:
    return next(i for i, run in enumerate(ordered) if run.model == model)


def within(ordered: Sequence[Run], options: Options) -> Iterator[tuple[float, Run]]:
    """What the budget holds, each run with the second at which it is expected to end."""
    now_s, up = 0.0, None
    for run in ordered:
        start_s, takes_s = 0.0, run_s(run, options)
        if up is None:
            start_s = later_start_s(run) + COLD_S
        elif run.server != up:
            start_s = later_start_s(run) if options.no_ahead else AHEAD_START_S
        if now_s + start_s + takes_s > options.budget_s:
            return
        now_s, up = now_s + start_s + takes_s, run.server
        yield now_s, run


def show(ordered: Sequence[Run], options: Options) -> None:
    """Print the plan."""
    fitting = list(within(ordered, options))
    for now_s, run in fitting:
        against = ",".join(f"{target:g}" for target in run.judged_ms)
        note = "  (anchor)" if run.is_anchor else ""
        print(f"{now_s:6.0f} s  {run.model} {run.arm.name} {run.cell} seed {run.seed} TBT {against}{note}")
    print(f"{len(fitting)} of {len(ordered)} runs fit; for all of them: {_total_s(ordered, options):.0f} s")


def _total_s(ordered: Sequence[Run], options: Options) -> float:
    unlimited = replace(options, budget_s=float("inf"))
    return max((now_s for now_s, _ in within(ordered, unlimited)), default=0.0)


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("matrix", __doc__)
    parser.add_argument("--plan", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument("--table", choices=sorted(TABLES), default="tables", help="which rounds it works off")
    parser.add_argument("--models", default="", help="only these, with commas between them")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), help="only the first so many")
    parser.add_argument("--no-anchor", action="store_true", help="do not compare with earlier sessions")
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1, help="of this machine, to work on at a time")
    parser.add_argument("--shares", type=spread.shares, help="only these: MODEL:SEED,MODEL:SEED")
    parser.add_argument("--leave-ratio", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--as-model", choices=sorted(START_S), help="in place of each model, to try the script"
    )
    parser.add_argument("--only-arms", help="in place of each round's arms, to try the script")
    parser.add_argument("--only-cells", help="in place of each round's cells")
    options = parse_run(parser, argv, Options)
    if options.gpus < 1 or (options.gpus > 1 and options.tp_size > 1):
        parser.error(f"--gpus {options.gpus}: 1 or more, and 1 with --tp-size above 1")
    unknown = {name for name in options.models.split(",") if name} - {one.model for one in ROUNDS}
    if unknown:
        known = ", ".join(dict.fromkeys(one.model for one in ROUNDS))
        parser.error(f"--models {options.models}: the models are {known}")
    return options


def rounds_of(options: Options) -> list[Round]:
    """Those that the command line leaves."""
    chosen = [
        one
        for one in TABLES[options.table][: options.rounds]
        if not options.models or one.model in options.models.split(",")
    ]
    if options.as_model:
        chosen = [replace(one, model=options.as_model) for one in chosen]
    if options.only_arms:
        chosen = [replace(one, arms=options.only_arms) for one in chosen]
    if options.only_cells:
        chosen = [replace(one, cells=options.only_cells, low_load=False) for one in chosen]
    return chosen


def main(argv: list[str] | None = None) -> int:
    """Measure; the exit code is 1 if an arm failed."""
    options = options_of(argv)
    ordered = in_order(
        rounds_of(options),
        done_in(options.results),
        tp_size=options.tp_size,
        anchored=not options.no_anchor,
        out=out_of_contention(list(read_runs(options.results))),
    )
    if options.shares is not None:
        ordered = [run for run in ordered if spread.share_of(run) in options.shares]
    if options.gpus > 1:
        return _on_all(ordered, options, list(sys.argv[1:] if argv is None else argv))
    if options.plan:
        show(ordered, options)
        return 0
    bench = Runner(options)
    run_until_told(bench.work(ordered))
    print(f"left: {bench.left} runs", flush=True)
    return 1 if bench.failed else 0


def _on_all(ordered: Sequence[Run], options: Options, argv: list[str]) -> int:
    """Divide the work; a process of its own does, or shows, the share of each GPU."""
    divided = spread.divide(ordered, options.gpus, lambda share: _total_s(share, options))
    words = [*argv, "--gpus", "1"]
    codes: list[int] = []

    async def work() -> None:
        codes.append(await spread.run_all("matrix", words, divided, options.log_dir))

    run_until_told(work())
    return max(codes, default=1)
