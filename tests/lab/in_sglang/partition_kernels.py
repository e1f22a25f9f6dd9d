"""Which kernels suit a partition of n SMs? Times products and attention of a model's layer on green contexts.

    python tests/lab partition-kernels products --out FOLDER [--model llama-8b]
    python tests/lab partition-kernels attention --out FOLDER   (needs sgl-kernel)
    python tests/lab partition-kernels host
    python tests/lab partition-kernels overlay --out FOLDER
    python tests/lab partition-kernels prefill-graphs --out FOLDER

products   by cuBLAS, by cuBLASLt, and by cuBLASLt told of n SMs or fewer (60 s)
attention  FlashAttention-3 as it is, told of n SMs (`sm_margin`), and with contexts undivided (30 s)
host       what launching and choosing cost the host
overlay    decode on all SMs with high priority beside prefill capped to n SMs, against partitions (40 s)
prefill-graphs  layers of a prefill launched, against replayed graphs of them (45 s)

Needs a GPU and PyTorch, no server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from in_sglang.green_by_ctypes import split_streams
from in_sglang.partition_layers import Shape, as_json, overlay, prefill_graphs, table
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.streams.gemm import CUBLASLT, WHOLE_DEVICE, Gemm, GemmInForce
from pdmuxd.engine.sglang.streams.green import split_device

TOTAL_SMS = 132
SHAPES = {
    "llama-8b": {"qkv": (4096, 6144), "o": (4096, 4096), "gate_up": (4096, 28672), "down": (14336, 4096)},
    "codellama-34b": {
        "qkv": (8192, 10240),
        "o": (8192, 8192),
        "gate_up": (8192, 44032),
        "down": (22016, 8192),
    },
    "qwen3-8b": {"qkv": (4096, 6144), "o": (4096, 4096), "gate_up": (4096, 24576), "down": (12288, 4096)},
    "qwen3-14b": {"qkv": (5120, 7168), "o": (5120, 5120), "gate_up": (5120, 34816), "down": (17408, 5120)},
}
"""Input and output features of a layer's products."""
PREFILL_SMS = (120, 116, 112, 108, 104, 100, 96, 88, 80, 64)
PREFILL_ROWS = (256, 512, 1024, 1536, 2048, 3072, 4096, 8192)
DECODE_SMS = (8, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 60, 68)
DECODE_ROWS = (8, 16, 32, 64, 96, 128, 192, 256)
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
DECODE_BATCHES = tuple((bs, context) for bs in (4, 16, 64, 128) for context in (512, 2048, 8192))
PREFILLS = ((512, 0), (1024, 0), (2048, 0), (8192, 0), (512, 8192), (2048, 16384))
LAYERS = 6
"""With weights and KV of their own, so that nothing is found in the L2 cache."""

LAYERED = {"overlay": overlay, "prefill-graphs": prefill_graphs}
Launch = Callable[[], object]
_kept: list[Any] = []
"""Green contexts, and what graphs read: both must outlive their use."""


def part(sms: int) -> Any:
    """A stream on `sms` SMs: whole groups of 8 if it is a multiple, else what a split leaves."""
    if sms == TOTAL_SMS:
        return torch.cuda.Stream()
    try:
        if sms % 8 == 0:
            rest, green = split_device(0, TOTAL_SMS - sms, sms)
        else:
            green, rest = split_device(0, sms, TOTAL_SMS - sms)
    except EngineError as error:
        print(f"{error}; once more through ctypes", flush=True)
        return torch.cuda.ExternalStream(_handle_by_ctypes(sms))
    _kept.extend((green, rest))
    return torch.cuda.ExternalStream(green.handle)


def _handle_by_ctypes(sms: int) -> int:
    """Raises: RuntimeError if the driver gives another size, EngineError if it gives none."""
    torch.zeros(1, device="cuda")  # makes the context that the driver is asked in
    first_sms = sms if sms % 8 == 0 else TOTAL_SMS - sms
    part_of, rest_of = split_streams(first_sms)
    handle, got = part_of if sms % 8 == 0 else rest_of
    if got != sms:
        raise RuntimeError(f"{sms} SMs were asked for, the driver gave {got}")
    return handle


def captured(stream: Any, launch: Launch) -> torch.cuda.CUDAGraph:
    """Its inputs are made on another stream, so it waits for all of them."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        launch()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launch()
    return graph


def alone_ms(graph: torch.cuda.CUDAGraph, stream: Any, repeats: int = 3) -> float:
    """Median of one replay."""
    took = []
    for _ in range(repeats + 1):
        with torch.cuda.stream(stream):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(stream)
            graph.replay()
            end.record(stream)
        end.synchronize()
        took.append(float(start.elapsed_time(end)))
    return statistics.median(took[1:])


def ways(sms: int) -> Iterator[Gemm]:
    """More than the engine tries, to see what it misses."""
    yield WHOLE_DEVICE
    yield Gemm(CUBLASLT)
    steps = (0, 4, 8, 12, 16) if sms >= 64 else (0, 4, 8, 12, 16, -4, -8, -16)
    for target in sorted({sms - step for step in steps if 4 <= sms - step < TOTAL_SMS}, reverse=True):
        yield Gemm(CUBLASLT, target)


def products(model: str) -> Iterator[dict[str, Any]]:
    """Milliseconds of each product, by SMs, rows and way; infinite where it cannot run."""
    in_force = GemmInForce(TOTAL_SMS)
    weights = {
        name: [torch.randn(b, a, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(LAYERS)]
        for name, (a, b) in SHAPES[model].items()
    }
    sides: list[tuple[int, tuple[int, ...]]] = [(TOTAL_SMS, (*DECODE_ROWS, *PREFILL_ROWS))]
    sides += [(sms, PREFILL_ROWS) for sms in PREFILL_SMS] + [(sms, DECODE_ROWS) for sms in DECODE_SMS]
    for sms, all_rows in sides:
        stream = part(sms)
        for rows in all_rows:
            found: dict[str, dict[str, float]] = {}
            for name, (inputs, outputs) in SHAPES[model].items():
                x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
                y = torch.empty(rows, outputs, device="cuda", dtype=torch.bfloat16)
                found[name] = {}
                for way in ways(sms):
                    in_force.put(way)
                    try:
                        graph = captured(stream, _multiplying(x, weights[name], y))
                        found[name][way.name] = round(alone_ms(graph, stream) / LAYERS, 5)
                    except RuntimeError as error:
                        found[name][way.name] = float("inf")
                        print(sms, rows, name, way.name, str(error)[:90], flush=True)
                    in_force.put(WHOLE_DEVICE)
            base = sum(each["cublas"] for each in found.values())
            best = sum(min(each.values()) for each in found.values())
            picks = " ".join(min(each, key=each.__getitem__) for each in found.values())
            print(
                f"{model} {sms:3} SMs {rows:5} rows {base:.4f} ms, best {base / best:.3f}x  {picks}",
                flush=True,
            )
            yield {"model": model, "sms": sms, "rows": rows, "ms": found}


def _multiplying(x: torch.Tensor, weights: list[torch.Tensor], y: torch.Tensor) -> Launch:
    def launch() -> None:
        for weight in weights:
            torch.mm(x, weight.t(), out=y)

    return launch


def attention() -> Iterator[dict[str, Any]]:
    """Milliseconds of one layer's attention, by SMs and batch."""
    points = [(sms, bs, 1, context) for sms in (16, 24, 32, 48) for bs, context in DECODE_BATCHES]
    points += [(sms, 1, new, new + reused) for sms in (116, 108, 100) for new, reused in PREFILLS]
    streams = {sms: part(sms) for sms in dict.fromkeys(sms for sms, *_ in points)}
    for sms, bs, new, context in points:
        found = {}
        for label, margin, splits in (
            ("as it is", 0, 0),
            ("told of its SMs", TOTAL_SMS - sms, 0),
            ("told, undivided", TOTAL_SMS - sms, 1),
        ):
            launch = _attending(bs, new, context, margin, splits)
            found[label] = round(alone_ms(captured(streams[sms], launch), streams[sms]) / LAYERS, 5)
        row = {"sms": sms, "bs": bs, "new": new, "context": context, "ms": found}
        print(json.dumps(row), flush=True)
        yield row


def _attending(bs: int, new: int, context: int, margin: int, splits: int) -> Launch:
    from sgl_kernel.flash_attn import flash_attn_with_kvcache, get_scheduler_metadata

    shape = (2, bs * context, 1, KV_HEADS, HEAD_DIM)
    caches = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
    table = torch.arange(bs * context, device="cuda", dtype=torch.int32).view(bs, context)
    lengths = torch.full((bs,), context, device="cuda", dtype=torch.int32)
    starts = torch.arange(0, bs * new + 1, new, device="cuda", dtype=torch.int32)
    q = torch.randn(bs * new, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    schedule = None
    if new == 1:  # of decode alone, as SGLang has it
        schedule = get_scheduler_metadata(
            batch_size=bs,
            max_seqlen_q=1,
            max_seqlen_k=context,
            num_heads=HEADS,
            num_heads_k=KV_HEADS,
            headdim=HEAD_DIM,
            cache_seqlens=lengths,
            qkv_dtype=torch.bfloat16,
            cu_seqlens_q=starts,
            page_size=1,
            causal=True,
            num_splits=splits,
            sm_margin=margin,
        )

    def launch() -> None:
        for keys, values in caches:
            flash_attn_with_kvcache(
                q,
                keys,
                values,
                page_table=table,
                cache_seqlens=lengths,
                cu_seqlens_q=starts,
                max_seqlen_q=new,
                causal=True,
                scheduler_metadata=schedule,
                num_splits=splits,
                sm_margin=margin,
            )

    return launch


def host() -> None:
    """Microseconds of launching a product, and of changing the way."""
    in_force = GemmInForce(TOTAL_SMS)
    x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(6144, 4096, device="cuda", dtype=torch.bfloat16)
    for way in (WHOLE_DEVICE, Gemm(CUBLASLT), Gemm(CUBLASLT, 112)):
        in_force.put(way)
        for rounds in (50, 400):
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            for _ in range(rounds):
                torch.nn.functional.linear(x, w)
            took_s = time.perf_counter() - began_s
        print(f"launch {way.name}: {took_s / 400 * 1e6:.1f} us", flush=True)
    began_s = time.perf_counter()
    for _ in range(1000):
        in_force.put(Gemm(CUBLASLT, 112))
        in_force.put(WHOLE_DEVICE)
    print(f"change and put back: {(time.perf_counter() - began_s) * 1e3:.2f} us", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Measure one thing; rows are written as they come."""
    parser = argparse.ArgumentParser(
        prog="python tests/lab partition-kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=["products", "attention", "host", *LAYERED])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("there is no GPU here")
    torch.zeros(1, device="cuda")
    if options.what == "host":
        host()
        return 0
    if options.what in LAYERED:
        return _layered(options.what, options.model, options.out)
    rows = attention() if options.what == "attention" else products(options.model)
    with (options.out / f"{options.what}.jsonl").open("a") as file:
        for row in rows:
            print(json.dumps(row), file=file, flush=True)
    return 0


def _layered(what: str, model: str, out: Path) -> int:
    """Rows as they come, then the table; 1 if none could be measured."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with (out / f"{what}.jsonl").open("a") as file:
        for row in LAYERED[what](Shape.of(SHAPES[model]), part, TOTAL_SMS):
            rows.append(row)
            print(as_json(row), file=file, flush=True)
            print(as_json(row), flush=True)
    print(table(what, rows), flush=True)
    return 0 if any("error" not in row for row in rows) else 1
