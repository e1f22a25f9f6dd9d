"""Tables from the results of `run.py`: `python tests/bench/gpu/table.py RESULTS.jsonl [--tbt-ms 20,50]`.

Means over the seeds, in Markdown. A rival is every arm that is not `ours:` with an adaptive policy: static
splits are rivals.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from score import summary

_HEAD = (
    "| arm | good | max - min | good short, long | goodput req/s | within TBT | TTFT p50, p99 ms "
    "| TBT p50, p99 ms | input tok/s | seeds | errors |"
)
ADAPTIVE = ("ours:auto", "ours:muxwise", "ours:duet", "ours:drift", "ours:pla")


def line(key: Sequence[Any], tbt_ms: float, figures: dict[str, Any]) -> str:
    """One run on one line."""
    return f"{' '.join(map(str, key[:4]))} @{tbt_ms:g}ms | {_cells(figures)}"


def _cells(figures: dict[str, Any]) -> str:
    return (
        f"good {_percent(figures['good_ratio'])} "
        f"({_percent(figures['good_short'])}/{_percent(figures['good_long'])}) "
        f"in TBT {_percent(figures['within_ratio'])} "
        f"TTFT {figures['ttft_p50_ms']:.0f}/{figures['ttft_p99_ms']:.0f} "
        f"TBT {figures['tbt_p50_ms']:.1f}/{figures['tbt_p99_ms']:.1f} "
        f"in {figures['input_tps']:.0f} tok/s of {figures['requests']} requests "
        f"({figures['unknown']} unknown, {figures['errors']} errors)"
    )


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f}%"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def table(runs: Sequence[dict[str, Any]], tbt_ms: float) -> str:
    """All arms of one cell at one target."""
    by_arm: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if run["key"][4] in (None, tbt_ms):
            by_arm[run["key"][1]].append(summary(run, tbt_ms=tbt_ms))
    rows = [_HEAD, "|" + "---|" * (_HEAD.count("|") - 1)]
    goodput: dict[str, float] = {}
    for arm, found in sorted(by_arm.items()):
        mean = {name: _mean([one[name] for one in found]) for name in found[0]}
        spread = [one["good_ratio"] for one in found if one["good_ratio"] is not None]
        goodput[arm] = mean["goodput_rps"] or 0.0
        rows.append(
            f"| {arm} | {_percent(mean['good_ratio'])} "
            f"| {_percent(max(spread) - min(spread)) if spread else '-'} "
            f"| {_percent(mean['good_short'])}, {_percent(mean['good_long'])} | {goodput[arm]:.2f} "
            f"| {_percent(mean['within_ratio'])} | {mean['ttft_p50_ms']:.0f}, {mean['ttft_p99_ms']:.0f} "
            f"| {mean['tbt_p50_ms']:.1f}, {mean['tbt_p99_ms']:.1f} | {mean['input_tps']:.0f} "
            f"| {len(found)} | {sum(one['errors'] for one in found)} |"
        )
    rivals = {arm: rps for arm, rps in goodput.items() if not arm.startswith(ADAPTIVE)}
    for arm in goodput.keys() - rivals.keys():
        if rivals and max(rivals.values()) > 0:
            best = max(rivals, key=lambda name: rivals[name])
            rows.append(f"\n{arm} against the best rival, {best}: {goodput[arm] / rivals[best]:.2f}")
    return "\n".join(rows)


def main() -> None:
    """Print every cell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--tbt-ms", default="20,50,100")
    options = parser.parse_args()
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in options.results:
        for text in path.read_text().splitlines():
            run = json.loads(text)
            cells[run["key"][0], run["key"][2]].append(run)
    for (model, cell), runs in sorted(cells.items()):
        for tbt_ms in map(float, options.tbt_ms.split(",")):
            print(f"\n### {model}, {cell}, TBT {tbt_ms:g} ms\n\n{table(runs, tbt_ms)}")


if __name__ == "__main__":
    main()
