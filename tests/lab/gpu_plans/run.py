"""Measure arms against each other on one GPU; see `daemon/bench/arms.py` for the arms and
`load/workload.py` for the cells.

    python tests/lab run --model llama-8b --arms stock,ours:auto --cells conv:24 --tbt-ms 50 --seeds 1

Each result is appended to --results as soon as it is there, and what is in that file is not run again: call
again with the same arguments to go on. An arm's server is started once for all its cells. Arms that know
no targets run once and are judged against each; the others run once per target. `matrix` has a plan of
its own for all that is to be measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_servers.model_folder import SHAPES
from gpu_servers.options import RunOptions, arms, cells, new_parser, numbers, parse_run, whole_numbers
from gpu_servers.runner import Runner
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load.workload import Cell
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.bench.runner import run_until_told


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    model: str
    arms: list[Arm]
    cells: list[Cell]
    tbt_ms: list[float]
    seeds: list[int]


def plan(options: Options) -> list[Run]:
    """All runs, those of one server together, seed by seed."""
    return [
        run
        for server in dict.fromkeys(arm.server for arm in options.arms)
        for seed in options.seeds
        for cell in options.cells
        for arm in options.arms
        if arm.server == server
        for run in Run.each(
            arm=arm,
            tbt_ms=options.tbt_ms,
            model=options.model,
            cell=cell,
            seed=seed,
            tp_size=options.tp_size,
        )
    ]


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("run", __doc__)
    parser.add_argument("--model", required=True, choices=sorted(SHAPES))
    parser.add_argument("--arms", type=arms, required=True)
    parser.add_argument("--cells", type=cells, required=True)
    parser.add_argument("--tbt-ms", type=numbers, required=True)
    parser.add_argument("--seeds", type=whole_numbers, default=[1, 2, 3])
    parser.add_argument("--leave-ratio", type=float, default=0.0, help="of clients that leave early")
    parser.add_argument("--tp-size", type=int, default=1)
    return parse_run(parser, argv, Options)


def main(argv: list[str] | None = None) -> int:
    """Run; the exit code is 1 if an arm failed."""
    options = options_of(argv)
    bench = Runner(options)
    run_until_told(bench.work(plan(options)))
    print(f"left: {bench.left} runs", flush=True)
    return 1 if bench.failed else 0
