"""How soon a GPU's clock falls under load, and what a step's products take then: needs a GPU.

    python tests/lab clock-under-load --out FILE

A campaign that rests between two points measures at a clock that serving does not have. Products of a fused
step of 1,024 rows (Llama-8B's four shapes, eight layers of weights in turn) run without a pause after a rest,
and each run is timed by events: milliseconds by time since the work began, after rests of 0.02 to 1 s, and
where only a spin kernel came before.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from statistics import median

import torch
from device_time import told

ROWS = 1024
SHAPES = ((6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336))
LAYERS = 8
RESTS_S = (0.02, 0.1, 1.0)
LASTS_S = 2.0
EDGES_MS = (0, 5, 20, 50, 100, 200, 500, 1000, 2000)


def series_ms(rest_s: float, weights: list[list[torch.Tensor]], spin_s: float) -> list[tuple[float, float]]:
    """By run: milliseconds since the first began, and its own."""
    inputs = [torch.randn(ROWS, columns, dtype=torch.bfloat16, device="cuda") for _, columns in SHAPES]
    outs = [torch.empty(ROWS, rows, dtype=torch.bfloat16, device="cuda") for rows, _ in SHAPES]
    torch.cuda.synchronize()
    time.sleep(rest_s)
    if spin_s:
        torch.cuda._sleep(int(spin_s * 2.0e9))
    marks = []
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < LASTS_S:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        marks.append(mark)
        for layer in weights:
            for x, weight, out in zip(inputs, layer, outs, strict=True):
                torch.mm(x, weight.t(), out=out)
        if len(marks) > 8:
            marks[-8].synchronize()  # launches stay a little ahead
    torch.cuda.synchronize()
    return [(marks[0].elapsed_time(a), a.elapsed_time(b)) for a, b in itertools.pairwise(marks)]


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    weights = [
        [torch.randn(shape, dtype=torch.bfloat16, device="cuda") for shape in SHAPES] for _ in range(LAYERS)
    ]
    series_ms(0.1, weights, 0.0)
    rows = []
    for rest_s, spin_s in itertools.product(RESTS_S, (0.0, 0.05)):
        seen = series_ms(rest_s, weights, spin_s)
        by_time = [
            median([took for at, took in seen if low <= at < high] or [float("nan")])
            for low, high in itertools.pairwise(EDGES_MS)
        ]
        rows.append((f"{rest_s:g}, {spin_s:g}", by_time))
    head = ["rest, spin, s", *(f"{low} to {high} ms" for low, high in itertools.pairwise(EDGES_MS))]
    told(f"{LAYERS} layers' products of {ROWS} rows, ms", head, rows, options.out)


if __name__ == "__main__":
    main()
