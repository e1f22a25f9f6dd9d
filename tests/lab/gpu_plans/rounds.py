"""What `matrix` measures, the most telling first: rounds of arms on cells.

The table that decides has a row per cell and target: ours against the best of all rivals. One seed of every
rival on two cells of each model comes first; then further seeds of those rivals that may be the best (see
`plans/contenders.py`), further cells, and last whatever else there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from gpu_servers.options import cells, parse_arms
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.results import Run

MAIN = "ours:auto,ours:static:96,36,chunk-512,chunk-1024,pdmux"
"""One server for the first two: the best fixed split of the baselines beside ours costs no start."""
OTHERS = "chunk-2048,chunk-256,stock,ours:static:112,20,ours:static:80,52"
OURS = "ours:muxwise,ours:pla,ours:drift,ours:duet"
"""Other policies of ours, on one server."""
LOW_LOAD = "decode:1,decode:8"
LOW_LOAD_SEEDS = (1, 2, 3)
LOW_LOAD_ARMS = ("ours:auto", "stock")
ANCHOR_ARM = "chunk-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Runs that are worth the same; a session finishes one before it begins the next."""

    model: str
    arms: str
    cells: str
    tbt_ms: tuple[float, ...]
    seeds: tuple[int, ...]
    low_load: bool = False
    """Also decode steps alone, of ours and of stock SGLang, on the servers that are up anyway: seconds."""
    contenders: bool = False
    """Only arms that may be the best rival of the cell."""

    def runs(self, tp_size: int) -> list[Run]:
        """Server by server."""
        arms = parse_arms(self.arms)
        return [
            run
            for server in dict.fromkeys(arm.server for arm in arms)
            for run in self._of_server([arm for arm in arms if arm.server == server], tp_size)
        ]

    def _of_server(self, arms: list[Arm], tp_size: int) -> Iterator[Run]:
        shared: dict[str, Any] = {"model": self.model, "tp_size": tp_size}
        for seed in self.seeds:
            for cell in cells(self.cells):
                for arm in arms:
                    yield from Run.each(arm=arm, tbt_ms=self.tbt_ms, cell=cell, seed=seed, **shared)
        for arm in arms:
            if self.low_load and arm.name in LOW_LOAD_ARMS:
                for cell, seed in product(cells(LOW_LOAD), LOW_LOAD_SEEDS):
                    yield from Run.each(arm=arm, tbt_ms=self.tbt_ms[-1:], cell=cell, seed=seed, **shared)


# Rates: where SGLang begins to fail on one H200 (docs/measurements/h200.md).
_SMALL: dict[str, Any] = {"model": "llama-8b", "tbt_ms": (20.0, 50.0)}
_LARGE: dict[str, Any] = {"model": "codellama-34b", "tbt_ms": (50.0, 100.0)}
_SMALL_CELLS, _LARGE_CELLS = "conv:24,mooncake:2.5", "conv:5.5,mooncake:0.5"
_SMALL_CODE, _LARGE_CODE = "code:15", "code:3.5"
_EVERY = f"{MAIN},{OTHERS}"
FIRST_TABLE = 4
"""So many rounds are one seed of everything on two cells of each model."""
ROUNDS = (
    Round(**_SMALL, arms=MAIN, cells=_SMALL_CELLS, seeds=(1,), low_load=True),
    Round(**_LARGE, arms=MAIN, cells=_LARGE_CELLS, seeds=(1,), low_load=True),
    Round(**_SMALL, arms=OTHERS, cells=_SMALL_CELLS, seeds=(1,), low_load=True),
    Round(**_LARGE, arms=OTHERS, cells=_LARGE_CELLS, seeds=(1,), low_load=True),
    Round(**_SMALL, arms=_EVERY, cells=_SMALL_CELLS, seeds=(2, 3), contenders=True),
    Round(**_LARGE, arms=_EVERY, cells=_LARGE_CELLS, seeds=(2, 3), contenders=True),
    Round(**_SMALL, arms=_EVERY, cells=_SMALL_CODE, seeds=(1,)),
    Round(**_LARGE, arms=_EVERY, cells=_LARGE_CODE, seeds=(1,)),
    Round(**_SMALL, arms=_EVERY, cells=_SMALL_CODE, seeds=(2, 3), contenders=True),
    Round(**_LARGE, arms=_EVERY, cells=_LARGE_CODE, seeds=(2, 3), contenders=True),
    Round(**_SMALL, arms=f"{_EVERY},{OURS}", cells=f"{_SMALL_CELLS},{_SMALL_CODE}", seeds=(1, 2, 3)),
    Round(**_LARGE, arms=f"{_EVERY},{OURS}", cells=f"{_LARGE_CELLS},{_LARGE_CODE}", seeds=(1, 2, 3)),
)

HELD_OUT_MAIN = "ours:auto,ours:auto:fcfs,ours:slack/chunked:1024,ours:chunked:1024,chunk-1024"
"""With the deadline order and without; the best rival on our loop with it and without; that rival itself."""
HELD_OUT_PAPERS = "ours:muxwise:preempt,ours:pla/muxwise,ours:drift,ours:duet"
# Past what one H200 held on 2026-11-23: chat at 160/s and summaries at 11/s were served whole by every arm.
HELD_OUT_CELLS = "mooncake:2.5,summaries:14,chat:220,tools:2"
_HELD_OUT: dict[str, Any] = {"model": "llama-8b", "tbt_ms": (50.0,), "cells": HELD_OUT_CELLS}
HELD_OUT = (
    Round(**_HELD_OUT, arms=HELD_OUT_MAIN, seeds=(1,)),
    Round(**_HELD_OUT, arms=HELD_OUT_PAPERS, seeds=(1,)),
    Round(**_HELD_OUT, arms=HELD_OUT_MAIN, seeds=(2, 3)),
)
TABLES = {"tables": ROUNDS, "held-out": HELD_OUT}
"""By the name that `matrix --table` takes."""
