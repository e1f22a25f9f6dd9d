"""Fill docs/evaluation.md and docs/ladder.md: `make evaluate TRACES=FOLDER`.

The parts ladder, steps and classes fill docs/ladder.md and need no traces; the others are evaluation.md's.

Results are kept as they come, so that an interrupted run goes on where it was, and a changed policy has
only its own results made again. `--quick` takes one seed and short runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evaluation.goodput import TBT_MS, WORKLOADS, read_column, run_beyond, run_goodput, settings
from evaluation.ladder import LOADS, ladders, run_ladders
from evaluation.ladder_page import render_ladder
from evaluation.page import render
from evaluation.papers import findings
from evaluation.reality import run_reality
from evaluation.steps import run_classes, run_steps
from evaluation.store import ROOT, Store
from evaluation.workloads import Sources
from rich.console import Console

from pdmuxd.daemon.compare.progress import CompareProgress
from pdmuxd.daemon.report.files import write_file
from pdmuxd.engine.core.errors import PdmuxdError

OF_TRACES = ("goodput", "beyond", "papers", "reality")
OF_LADDER = ("ladder", "steps", "classes")
PARTS = OF_TRACES + OF_LADDER


def main() -> int:
    """Run what is missing, then write the page. Exit code 2 for bad input."""
    arguments = _arguments()
    sources = Sources(traces=arguments.traces, quick=arguments.quick, jobs=arguments.jobs)
    for name, parts, make in (("evaluation", OF_TRACES, _evaluate), ("ladder", OF_LADDER, _climb)):
        if not set(arguments.part) & set(parts):
            continue
        name = f"{name}{'-quick' if arguments.quick else ''}"
        page = arguments.page or ROOT / "docs" / f"{name}.md"
        json_path = arguments.json or ROOT / "docs" / "measurements" / f"{name}.json"
        try:
            with CompareProgress(Console(stderr=True), shown=sys.stderr.isatty()) as progress:
                write_file(page, make(arguments, sources, json_path, progress).encode())
        except PdmuxdError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(f"{page} and {json_path} written")
    return 0


def _climb(
    arguments: argparse.Namespace, sources: Sources, json_path: Path, progress: CompareProgress
) -> str:
    json_path.parent.mkdir(parents=True, exist_ok=True)
    store = Store(json_path)
    if "ladder" in arguments.part:
        run_ladders(sources, store, arguments.load, progress)
    return render_ladder(
        json_path.name,
        list(ladders(sources, store)),
        run_steps(sources, store, progress) if "steps" in arguments.part else [],
        run_classes(sources, store, progress) if "classes" in arguments.part else [],
        quick=arguments.quick,
    )


def _evaluate(
    arguments: argparse.Namespace, sources: Sources, json_path: Path, progress: CompareProgress
) -> str:
    json_path.parent.mkdir(parents=True, exist_ok=True)
    store = Store(json_path)
    wanted = list(settings(arguments.profile, arguments.workload))
    if "goodput" in arguments.part:
        run_goodput(sources, store, wanted, progress)
    if "beyond" in arguments.part:
        run_beyond(sources, store, wanted, progress)
    shown = [read_column(sources.plan(s.profile, s.workload), s, store) for s in wanted]
    return render(
        sources,
        json_path.name,
        [column for column in shown if column is not None],
        list(findings(sources, store, progress)) if "papers" in arguments.part else [],
        run_reality(sources, store, progress) if "reality" in arguments.part else [],
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the recorded traces, where they are needed")
    parser.add_argument(
        "--quick", action="store_true", help="one seed, short runs; writes evaluation-quick.*"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--profile", action="append", choices=list(TBT_MS), help="goodput: only this profile")
    parser.add_argument(
        "--workload", action="append", choices=[w.name for w in WORKLOADS], help="goodput: only this workload"
    )
    names = [load.name for load in LOADS]
    parser.add_argument("--load", action="append", choices=names, help="ladder: only this load")
    parser.add_argument("--page", type=Path, help="instead of the page in docs, for parts of one page")
    parser.add_argument("--json", type=Path, help="instead of the file in docs/measurements")
    arguments = parser.parse_args()
    arguments.part = arguments.part or list(PARTS)
    wants_traces = bool(set(arguments.part) & set(OF_TRACES))
    if wants_traces and arguments.traces is None:
        parser.error(f"--traces: needed for {', '.join(OF_TRACES)}; {', '.join(OF_LADDER)} do without")
    if (arguments.page or arguments.json) and wants_traces and set(arguments.part) & set(OF_LADDER):
        parser.error("--page and --json: of one page; name its parts with --part")
    arguments.load = arguments.load or names
    arguments.profile = arguments.profile or list(TBT_MS)
    arguments.workload = arguments.workload or [w.name for w in WORKLOADS]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
