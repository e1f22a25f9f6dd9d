"""Tables from the results of `run` and `matrix`:

    python tests/lab table RESULTS.jsonl

Means over the seeds, in Markdown, for every target that a result was judged against or `--tbt-ms` names. A
rival is every arm that is not `ours:` with an adaptive policy: static splits are rivals. At the end, one row
per cell with what was aimed at, and whether the sessions agree. Of an engine of ours only its last build is
shown; a run that was measured several times counts once.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_plans.anchors import agreement
from gpu_servers.options import new_parser, numbers
from pdmuxd.daemon.bench.load.score import percent, summary
from pdmuxd.daemon.bench.results import counted, read_runs

_HEAD = (
    "| arm | good | max - min | good short, long | first token in time | goodput req/s | within TBT "
    "| TTFT p50, p99 ms | TBT p50, p99 ms | input tok/s | seeds | errors |"
)
_VERDICTS = (
    "| cell | TBT ms | arm | gaps within | best rival's | target | goodput / best rival's | target | seeds |"
)
ADAPTIVE = ("ours:auto", "ours:muxwise", "ours:duet", "ours:drift", "ours:pla")
TARGETS_MS = {"llama-8b": (20.0, 50.0), "codellama-34b": (50.0, 100.0)}
WITHIN_RATIO = 0.99
STEP_RATIO = 1.03
HOST_DELAYED_RATIO = 0.01
LEAD_RATIO = 1.3
"""Where contexts are long (Mooncake) or the model is large; elsewhere at least as good as the best rival."""


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def means(runs: Sequence[dict[str, Any]], tbt_ms: float) -> dict[str, dict[str, Any]]:
    """By arm, its figures at one target as means over the seeds; `spread` is of the good ones."""
    by_arm: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if run["key"][4] in (None, tbt_ms):
            by_arm[run["key"][1]].append(summary(run, tbt_ms=tbt_ms))
    figures: dict[str, dict[str, Any]] = {}
    for arm, found in sorted(by_arm.items()):
        good = [one["good_ratio"] for one in found if one["good_ratio"] is not None]
        figures[arm] = {name: _mean([one[name] for one in found]) for name in found[0]} | {
            "goodput_rps": _mean([one["goodput_rps"] for one in found]) or 0.0,
            "spread": max(good) - min(good) if good else None,
            "seeds": len(found),
            "errors": sum(one["errors"] for one in found),
        }
    return figures


def table(runs: Sequence[dict[str, Any]], tbt_ms: float) -> str:
    """All arms of one cell at one target."""
    rows = [_HEAD, "|" + "---|" * (_HEAD.count("|") - 1)]
    rows += [
        f"| {arm} | {percent(mean['good_ratio'])} | {percent(mean['spread'])} "
        f"| {percent(mean['good_short'])}, {percent(mean['good_long'])} "
        f"| {percent(mean['in_time_ratio'])} | {mean['goodput_rps']:.2f} "
        f"| {percent(mean['within_ratio'])} | {mean['ttft_p50_ms']:.0f}, {mean['ttft_p99_ms']:.0f} "
        f"| {mean['tbt_p50_ms']:.1f}, {mean['tbt_p99_ms']:.1f} | {mean['input_tps']:.0f} "
        f"| {mean['seeds']} | {mean['errors']} |"
        for arm, mean in means(runs, tbt_ms).items()
    ]
    return "\n".join(rows)


def step_ms(run: Mapping[str, Any]) -> float | None:
    """Mean gap between tokens, finer than the histogram of gaps; for requests that decode undisturbed."""
    gaps = [(row[7] - row[4], row[3] - 1) for row in run["rows"] if row[8] == "done" and row[3] > 1]
    return sum(ms for ms, _ in gaps) / sum(count for _, count in gaps) if gaps else None


def steps(runs: Sequence[dict[str, Any]], model: str, cell: str) -> list[str]:
    """Of a `decode` cell: the step of each of our arms against stock SGLang's."""
    by_arm: dict[str, list[float | None]] = defaultdict(list)
    for run in runs:
        by_arm[run["key"][1]].append(step_ms(run))
    stock_ms = _mean(by_arm.get("stock", []))
    if stock_ms is None:
        return []
    return [
        f"{model} {cell} {arm}: a step of {mean:.3f} ms against stock's {stock_ms:.3f}: "
        f"{mean / stock_ms:.3f}, at most {STEP_RATIO} is aimed at"
        for arm, found in sorted(by_arm.items())
        if arm.startswith("ours:") and (mean := _mean(found)) is not None
    ]


def host(runs: Sequence[dict[str, Any]], model: str, cell: str) -> list[str]:
    """Of each of our arms, how many steps the host delayed in the worst of its runs."""
    worst: dict[str, float] = {}
    for run in runs:
        delayed = run.get("engine", {}).get("host")
        if delayed is not None:
            arm = run["key"][1]
            worst[arm] = max(worst.get(arm, 0.0), delayed["delayed_ratio"])
    return [
        f"{model} {cell} {arm}: the host delayed {percent(ratio)} of the steps in the worst run; at most "
        f"{HOST_DELAYED_RATIO:.0%} is aimed at"
        for arm, ratio in sorted(worst.items())
    ]


def verdicts(runs: Sequence[dict[str, Any]], model: str, cell: str, tbt_ms: float) -> list[str]:
    """One row per adaptive arm of ours: what it reached, and what it should."""
    figures = means(runs, tbt_ms)
    rivals = {arm: mean for arm, mean in figures.items() if not arm.startswith(ADAPTIVE)}
    if not rivals:
        return []
    best = max(rivals, key=lambda arm: rivals[arm]["goodput_rps"])
    within = max((mean["within_ratio"] or 0.0) for mean in rivals.values())
    aimed = LEAD_RATIO if cell.startswith("mooncake") or "34b" in model else 1.0
    rows = []
    for arm in figures.keys() - rivals.keys():
        mean, rival_rps = figures[arm], rivals[best]["goodput_rps"]
        ratio = mean["goodput_rps"] / rival_rps if rival_rps else None
        asked = f"{WITHIN_RATIO:.0%}" if within >= WITHIN_RATIO else "no rival has 99%"
        rows.append(
            f"| {model} {cell} | {tbt_ms:g} | {arm} | {percent(mean['within_ratio'])} | {percent(within)} "
            f"| {asked} | {'-' if ratio is None else format(ratio, '.2f')} ({best}) | {aimed:g} "
            f"| {mean['seeds']}, {rivals[best]['seeds']} |"
        )
    return sorted(rows)


def main(argv: list[str] | None = None) -> int:
    """Print every cell, then the verdicts."""
    parser = new_parser("table", __doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--tbt-ms", type=numbers, help="in place of the model's own targets")
    options = parser.parse_args(argv)
    missing = [str(path) for path in options.results if not path.is_file()]
    if missing:
        parser.error(f"{missing[0]}: there is no such file")
    results = [result for path in options.results for result in read_runs(path)]
    shown = counted(results)
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in shown:
        cells[run["key"][0], run["key"][2]].append(run)
    last: list[str] = []
    alone: list[str] = []
    for (model, cell), runs in sorted(cells.items()):
        for tbt_ms in options.tbt_ms or TARGETS_MS.get(model.partition("/")[0], (50.0,)):
            print(f"\n### {model}, {cell}, TBT {tbt_ms:g} ms\n\n{table(runs, tbt_ms)}")
            last += [] if cell.startswith(("decode:", "prefill:")) else verdicts(runs, model, cell, tbt_ms)
        if cell.startswith("decode:"):
            alone += steps(runs, model, cell)
        alone += host(runs, model, cell)
    print("\n### What was aimed at\n")
    print("\n".join([_VERDICTS, "|" + "---|" * (_VERDICTS.count("|") - 1), *last]))
    print("\n".join(["", *alone]))
    print(f"\n{len(shown)} of {len(results)} results shown; the others are repeated or of an older build.")
    print("\n".join(agreement(results)))
    return 0
