"""What being told of a partition's SMs gives a product of FP8 in blocks: DeepGEMM as it is, told, and Triton.

    python tests/lab fp8-products --out FOLDER [--model qwen3-8b] [--sms 100 116] [--compile-only]

For each partition, number of rows and product of a layer: milliseconds of one product in a graph of several
layers' weights, by SGLang's own functions, quantizing the input included. The results of `told` are compared
bit by bit with those of `as it is`. The engine tells some (docs/decisions/0099-deepgemm-and-its-sms.md).
DeepGEMM compiles each kernel when it is first needed, in some 5 s, and keeps it: `--compile-only` launches
each point once, and may run in several processes with other SMs each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from in_sglang.partition_kernels import SHAPES, TOTAL_SMS, alone_ms, captured, part
from pdmuxd.engine.sglang.api.symbols import deep_gemm

PREFILL_SMS, PREFILL_ROWS = (124, 116, 108, 100, 92, 84, 68, 52), (512, 1024, 4096)
DECODE_SMS, DECODE_ROWS = (80, 64, 48, 40, 24, 16, 8), (16, 64)
BLOCK = [128, 128]
LAYERS = 4
"""With weights of their own, so that none is found in the L2 cache."""

Product = Callable[..., torch.Tensor]


def points(wanted: list[int]) -> Iterator[tuple[int, int]]:
    """SMs and rows."""
    for sides, all_rows in ((PREFILL_SMS, PREFILL_ROWS), (DECODE_SMS, DECODE_ROWS)):
        for sms in (TOTAL_SMS, *sides):
            yield from ((sms, rows) for rows in all_rows if not wanted or sms in wanted)


class Layer:
    """One product's weights, of some layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        size = (LAYERS, outputs, inputs)
        self.weights = (torch.randn(size, device="cuda") * 0.02).to(torch.float8_e4m3fn)
        blocks = (LAYERS, -(-outputs // BLOCK[0]), -(-inputs // BLOCK[1]))
        self.scales = torch.rand(blocks, device="cuda") + 0.5

    def launch(self, multiply: Product, x: torch.Tensor) -> list[torch.Tensor]:
        """The input times each layer's weights."""
        return [multiply(x, w, BLOCK, s) for w, s in zip(self.weights, self.scales, strict=True)]


def measured(model: str, wanted: list[int], *, compile_only: bool) -> Iterator[dict[str, Any]]:
    """Rows as they come."""
    os.environ["SGLANG_JIT_DEEPGEMM_PRECOMPILE"] = "0"  # of up to 65,536 rows, each launched
    from sglang.srt.layers.quantization import fp8_utils

    library = deep_gemm()
    by_deep_gemm: Product = fp8_utils.deepgemm_w8a8_block_fp8_linear_with_fallback
    layers = {name: Layer(*shape) for name, shape in SHAPES[model].items()}
    streams: dict[int, Any] = {}
    for sms, rows in points(wanted):
        stream = streams.setdefault(sms, part(sms))
        found: dict[str, dict[str, float]] = {}
        same = True
        began_s = time.perf_counter()
        for name, (inputs, _) in SHAPES[model].items():
            x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
            ways = {"as it is": (TOTAL_SMS, by_deep_gemm), "told": (sms, by_deep_gemm)}
            ways["triton"] = (TOTAL_SMS, fp8_utils.triton_w8a8_block_fp8_linear)
            found[name], results = {}, []
            for way, (told, multiply) in ways.items():
                torch.cuda.synchronize()
                library.set_num_sms(told)
                with torch.cuda.stream(stream):
                    results.append(layers[name].launch(multiply, x))
                    stream.synchronize()
                    if not compile_only:
                        graph = captured(stream, partial(layers[name].launch, multiply, x))
                        found[name][way] = round(alone_ms(graph, stream) / LAYERS, 5)
                library.set_num_sms(TOTAL_SMS)
            same &= all(map(torch.equal, *results[:2]))
        row: dict[str, Any] = {"model": model, "sms": sms, "rows": rows, "is_same": same}
        if compile_only:
            row["first_s"] = round(time.perf_counter() - began_s, 1)
        else:
            row["ms"] = found
            row["layer_ms"] = {way: round(sum(each[way] for each in found.values()), 4) for way in ways}
        yield row


def main(argv: list[str] | None = None) -> int:
    """Measure; rows are written as they come."""
    parser = argparse.ArgumentParser(
        prog="python tests/lab fp8-products",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--model", choices=sorted(SHAPES), default="qwen3-8b")
    parser.add_argument("--sms", type=int, nargs="+", default=[], help="these partitions alone")
    parser.add_argument("--compile-only", action="store_true", help="launch each once, measure nothing")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("there is no GPU here")
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "fp8-products.jsonl").open("a") as file:
        for row in measured(options.model, options.sms, compile_only=options.compile_only):
            print(json.dumps(row), file=file, flush=True)
            print(json.dumps(row), flush=True)
    return 0
