"""Measure arms against each other on one GPU; see `arms.py` for the arms, `workload.py` for the cells.

    PYTHONPATH=SITE python3 tests/bench/gpu/run.py --model llama-8b --arms stock,chunk-512,ours:auto \\
        --cells conv:24,mooncake:1.5 --tbt-ms 20,50 --seeds 1,2,3 --budget-s 560

Each result is appended to --results as soon as it is there, and what is in that file is not run again: call
again with the same arguments to go on. An arm's server is started once for all its cells. Arms that know
no targets run once and are judged against each; the others run once per target. `matrix.py` has a plan of
its own for all that is to be measured.
"""

from __future__ import annotations

import argparse
import sys

import arms as arms_module
from bench import Bench, run_until_told
from model_folder import SHAPES
from options import add_common, cells, numbers, whole_numbers
from runs import Run


def plan(options: argparse.Namespace) -> list[Run]:
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


def options_of(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", required=True, choices=sorted(SHAPES))
    parser.add_argument("--arms", type=arms_module.parse, required=True)
    parser.add_argument("--cells", type=cells, required=True)
    parser.add_argument("--tbt-ms", type=numbers, required=True)
    parser.add_argument("--seeds", type=whole_numbers, default=[1, 2, 3])
    parser.add_argument("--leave-ratio", type=float, default=0.0, help="of clients that leave early")
    parser.add_argument("--tp-size", type=int, default=1)
    return add_common(parser, argv)


def main() -> int:
    """Run; the exit code is 1 if an arm failed."""
    options = options_of()
    bench = Bench(options)
    run_until_told(bench.work(plan(options)))
    print(f"left: {bench.left} runs", flush=True)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
