"""Which kernels should matrix products run with on n SMs? Times the products of a model's layer on green contexts of many
sizes: by cuBLAS, by cuBLASLt, and by cuBLASLt told of n SMs or fewer; alone, beside each other, and with decode on a
high-priority stream of the whole GPU above a capped prefill. Needs a GPU and PyTorch, no server.

    python partition_products.py sweep --out FOLDER [--model llama-8b]      each product, alone
    python partition_products.py pairs --out FOLDER                         stacks of layers side by side
    python partition_products.py host                                       what choosing and launching cost the host
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pdmuxd.engine.sglang.streams.green import split_device

TOTAL = 132
# Columns and rows of a layer's weights: attention's input and output, the MLP's input and output.
SHAPES = {
    "llama-8b": {"qkv": (4096, 6144), "o": (4096, 4096), "gate_up": (4096, 28672), "down": (14336, 4096)},
    "codellama-34b": {
        "qkv": (8192, 10240),
        "o": (8192, 8192),
        "gate_up": (8192, 44032),
        "down": (22016, 8192),
    },
    "qwen3-14b": {"qkv": (5120, 7168), "o": (5120, 5120), "gate_up": (5120, 34816), "down": (17408, 5120)},
}
PREFILL_SMS = (120, 116, 112, 108, 104, 100, 96, 88, 80, 64)
PREFILL_ROWS = (256, 512, 1024, 1536, 2048, 3072, 4096, 8192)
DECODE_SMS = (8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 60, 68)
DECODE_ROWS = (8, 16, 32, 64, 96, 128, 192, 256)
LAYERS = 6
"""Distinct weights, so that a product does not find its own in the L2 cache."""


@dataclass(frozen=True, slots=True)
class Way:
    """A library, and the SMs that it is told of (None for none)."""

    library: str
    target: int | None = None

    @property
    def name(self) -> str:
        return self.library if self.target is None else f"{self.library}@{self.target}"

    def choose(self) -> None:
        torch.backends.cuda.preferred_blas_library(self.library)
        torch._C._set_sm_carveout_experimental(None if self.target is None else TOTAL - self.target)


def ways(sms: int) -> Iterator[Way]:
    yield Way("cublas")
    yield Way("cublaslt")
    steps = (0, 4, 8, 12, 16) if sms >= 64 else (0, 4, 8, -4, -8, -16)
    for target in sorted({sms - step for step in steps if 4 <= sms - step < TOTAL}, reverse=True):
        yield Way("cublaslt", target)


def part(sms: int) -> Any:
    """A stream on `sms` SMs; a multiple of 8, or what is left of one."""
    if sms == TOTAL:
        return torch.cuda.Stream()
    first, rest = split_device(0, *((sms, TOTAL - sms) if sms % 8 == 0 else (TOTAL - sms, sms)))
    green = first if sms % 8 == 0 else rest
    _kept.extend((first, rest))
    return torch.cuda.ExternalStream(green.handle)


_kept: list[Any] = []


def weights(shapes: dict[str, tuple[int, int]]) -> dict[str, list[torch.Tensor]]:
    return {
        name: [torch.randn(b, a, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(LAYERS)]
        for name, (a, b) in shapes.items()
    }


def captured(stream: Any, way: Way, launches: Callable[[], None]) -> torch.cuda.CUDAGraph:
    way.choose()
    with torch.cuda.stream(stream):
        launches()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launches()
    Way("cublas").choose()
    return graph


def timed(graph: torch.cuda.CUDAGraph, stream: Any, rounds: int) -> tuple[Any, Any]:
    with torch.cuda.stream(stream):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(stream)
        for _ in range(rounds):
            graph.replay()
        end.record(stream)
    return start, end


def alone_ms(graph: torch.cuda.CUDAGraph, stream: Any, repeats: int = 3) -> float:
    """Median of one replay."""
    timed(graph, stream, 1)
    marks = [timed(graph, stream, 1) for _ in range(repeats)]
    stream.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in marks)


def sweep(model: str, out: Path, sizes: Iterable[int]) -> None:
    shapes = SHAPES[model]
    stack = weights(shapes)
    sides = [(sms, PREFILL_ROWS) for sms in PREFILL_SMS] + [(sms, DECODE_ROWS) for sms in DECODE_SMS]
    sides = [(TOTAL, (*DECODE_ROWS, *PREFILL_ROWS)), *sides]
    with out.open("a") as file:
        for sms, all_rows in sides:
            if sizes and sms not in sizes:
                continue
            stream = part(sms)
            for rows in all_rows:
                found: dict[str, dict[str, float]] = {}
                for name, (width, height) in shapes.items():
                    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
                    y = torch.empty(rows, height, device="cuda", dtype=torch.bfloat16)
                    found[name] = {}
                    for way in ways(sms):

                        def launches(x: torch.Tensor = x, y: torch.Tensor = y, name: str = name) -> None:
                            for weight in stack[name]:
                                torch.mm(x, weight.t(), out=y)

                        try:
                            graph = captured(stream, way, launches)
                            found[name][way.name] = round(alone_ms(graph, stream) / LAYERS, 5)
                        except RuntimeError as error:
                            found[name][way.name] = float("inf")
                            print(sms, rows, name, way.name, str(error)[:90], flush=True)
                print(
                    json.dumps({"model": model, "sms": sms, "rows": rows, "ms": found}), file=file, flush=True
                )
                base = sum(f["cublas"] for f in found.values())
                exact = sum(f.get(f"cublaslt@{sms}", f["cublaslt"]) for f in found.values())
                best = sum(min(f.values()) for f in found.values())
                picks = " ".join(min(f, key=f.__getitem__) for f in found.values())
                print(
                    f"{model} {sms:3} SMs {rows:5} rows  cublas {base:.4f}  exact {base / exact:.3f}x"
                    f"  best {base / best:.3f}x  {picks}",
                    flush=True,
                )


def stack_graph(stream: Any, rows: int, choose: Callable[[str], Way], shapes: Any, stack: Any) -> Any:
    """32 layers, each product the way that is chosen for it."""
    xs = {n: torch.randn(rows, a, device="cuda", dtype=torch.bfloat16) for n, (a, _) in shapes.items()}
    ys = {n: torch.empty(rows, b, device="cuda", dtype=torch.bfloat16) for n, (_, b) in shapes.items()}

    def launches() -> None:
        for layer in range(32):
            for name in shapes:
                choose(name).choose()
                torch.mm(xs[name], stack[name][layer % LAYERS].t(), out=ys[name])

    graph = captured(stream, Way("cublas"), launches)
    Way("cublas").choose()
    return graph, xs, ys


def pairs(out: Path, sweeps: Path, seconds: float) -> None:
    shapes = SHAPES["llama-8b"]
    stack = weights(shapes)
    best: dict[tuple[int, int, str], Way] = {}
    for line in sweeps.read_text().splitlines():
        row = json.loads(line)
        if row["model"] == "llama-8b":
            for name, found in row["ms"].items():
                library, _, target = min(found, key=found.__getitem__).partition("@")
                best[row["sms"], row["rows"], name] = Way(library, int(target) if target else None)
    layouts = [(120, 12), (116, 16), (112, 20), (108, 24), (104, 28), (100, 32), (96, 36)]
    with out.open("a") as file:
        for prefill_sms, decode_sms in layouts:
            for overlay in (False, True):
                prefill_stream = part(prefill_sms)
                decode_stream = torch.cuda.Stream(priority=-1) if overlay else part(decode_sms)
                for rows, bs in ((2048, 64), (2048, 128)):
                    for mode in ("cublas", "best"):

                        def choose(name: str, sms: int, rows: int, mode: str = mode) -> Way:
                            if mode == "cublas" or sms == TOTAL:
                                return Way("cublas")
                            return Way("cublaslt", sms) if mode == "exact" else best[sms, rows, name]

                        p = stack_graph(
                            prefill_stream, rows, lambda n, r=rows: choose(n, prefill_sms, r), shapes, stack
                        )
                        d = stack_graph(
                            decode_stream, bs, lambda n, r=bs: choose(n, decode_sms, r), shapes, stack
                        )
                        p_ms, d_ms = alone_ms(p[0], prefill_stream), alone_ms(d[0], decode_stream)
                        p_n, d_n = int(seconds * 1e3 / p_ms / 1.15), int(seconds * 1e3 / d_ms / 1.15)
                        d_marks = timed(d[0], decode_stream, d_n)
                        p_marks = timed(p[0], prefill_stream, p_n)
                        time.sleep(seconds * 0.6)
                        clock = subprocess.run(
                            [
                                "nvidia-smi",
                                "--query-gpu=clocks.sm,power.draw",
                                "--format=csv,noheader,nounits",
                            ],
                            capture_output=True,
                            text=True,
                            check=False,
                        ).stdout.strip()
                        torch.cuda.synchronize()
                        row = {
                            "layout": "overlay" if overlay else "split",
                            "sms": [prefill_sms, decode_sms],
                            "rows": [rows, bs],
                            "mode": mode,
                            "alone_ms": [round(p_ms, 2), round(d_ms, 2)],
                            "beside_ms": [
                                round(p_marks[0].elapsed_time(p_marks[1]) / p_n, 2),
                                round(d_marks[0].elapsed_time(d_marks[1]) / d_n, 2),
                            ],
                            "clock_power": clock,
                        }
                        print(json.dumps(row), file=file, flush=True)
                        print(json.dumps(row), flush=True)


def host() -> None:
    """Launching a product, and changing the way, in microseconds of the host."""
    x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(6144, 4096, device="cuda", dtype=torch.bfloat16)
    for way in (Way("cublas"), Way("cublaslt"), Way("cublaslt", 112)):
        way.choose()
        for _ in range(50):
            torch.nn.functional.linear(x, w)
        torch.cuda.synchronize()
        t = time.perf_counter()
        for _ in range(400):
            torch.nn.functional.linear(x, w)
        took = time.perf_counter() - t
        torch.cuda.synchronize()
        print(f"launch {way.name}: {took / 400 * 1e6:.1f} us", flush=True)
    t = time.perf_counter()
    for i in range(1000):
        torch._C._set_sm_carveout_experimental(i % 100)
    print(f"set carve-out: {(time.perf_counter() - t) * 1e3:.2f} us", flush=True)
    kinds = [torch._C._BlasBackend.Cublas, torch._C._BlasBackend.Cublaslt]
    t = time.perf_counter()
    for i in range(1000):
        torch._C._set_blas_preferred_backend(kinds[i % 2])
    print(f"set library: {(time.perf_counter() - t) * 1e3:.2f} us", flush=True)
    Way("cublas").choose()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["sweep", "pairs", "host"])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--sms", type=int, nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=1.2)
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    if options.what == "sweep":
        sweep(options.model, options.out / "products.jsonl", options.sms)
    elif options.what == "pairs":
        pairs(options.out / "pairs.jsonl", options.out / "products.jsonl", options.seconds)
    else:
        host()


if __name__ == "__main__":
    main()
