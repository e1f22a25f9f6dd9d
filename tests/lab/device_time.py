"""Times of work on a GPU by itself, without the host's launching; what prints and keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

RUNS = 30
WARM_UP = 3
HOLD_CYCLES = 2_000_000
"""Of the device, some milliseconds, in which the work is launched."""


def took_ms(work: Callable[[], object], *, prepare: Callable[[], object] = lambda: None) -> float:
    """Median of RUNS runs, by events; `prepare` is done before each and does not count."""
    took = []
    for _ in range(WARM_UP + RUNS):
        prepare()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HOLD_CYCLES)
        begin.record()
        work()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    return median(took[WARM_UP:])


def told(
    title: str, head: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], out: Path | None
) -> None:
    """Print a table, and keep it as JSON if `out` is given: by row, the milliseconds of each column."""
    table = Table(title=f"{torch.cuda.get_device_name()}: {title}")
    for column in head:
        table.add_column(column)
    for name, took in rows:
        table.add_row(name, *(f"{ms:.3f}" for ms in took))
    Console(width=110).print(table)
    if out is not None:
        kept = [{"row": name, "ms": dict(zip(head[1:], took, strict=True))} for name, took in rows]
        out.write_text(json.dumps(kept, indent=1))
