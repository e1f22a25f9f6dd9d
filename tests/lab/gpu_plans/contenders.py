"""Which rivals may still be the best of a cell: further seeds of the others can wait for everything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gpu_plans.table import ADAPTIVE, TARGETS_MS, means
from pdmuxd.daemon.bench.results import counted

WORTH_RATIO = 0.8
"""Of the best rival's goodput: seeds differ by less (one H200, Llama-8B: 5%; a third on 47 requests)."""

Out = frozenset[tuple[str, str, str]]
"""Model with its ranks, cell, arm."""


def out_of_contention(results: Sequence[dict[str, Any]]) -> Out:
    """Rivals that are far behind the best one at every target of their cell."""
    by_cell: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in counted(results):
        by_cell[run["key"][0], run["key"][2]].append(run)
    out: set[tuple[str, str, str]] = set()
    for (model, cell), runs in by_cell.items():
        rivals = {run["key"][1] for run in runs if not run["key"][1].startswith(ADAPTIVE)}
        behind = set(rivals)
        for tbt_ms in TARGETS_MS.get(model.partition("/")[0], ()):
            rps = {arm: found["goodput_rps"] for arm, found in means(runs, tbt_ms).items() if arm in rivals}
            best_rps = max(rps.values(), default=0.0)
            behind &= {arm for arm, found_rps in rps.items() if found_rps < WORTH_RATIO * best_rps}
        out |= {(model, cell, arm) for arm in behind}
    return frozenset(out)
