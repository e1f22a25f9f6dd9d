"""What choosing a step's tokens takes on a GPU, by rows and way: needs SGLang and a GPU.

    python tests/lab sampling-cost --out FILE [--flashinfer]

A campaign asked for the likeliest token; a request that says nothing is sampled at temperature 1. Ways:
`greedy` (what campaigns measured), `sglang` (what serving does), `parts` of it, `one pass` (the Triton kernel
below), `top-p` as SGLang does it with PyTorch, and with `--flashinfer` its `sampling_from_logits`. Median of
30 runs, by events, in milliseconds. `--check` draws 200,000 tokens of a row of 64 logits by each way and
prints how far their shares are from the probabilities.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from device_time import told, took_ms

VOCAB = 128_256
"""Llama-3's."""
ROWS = (1, 16, 43, 64, 128, 184, 256)
DRAWS = 200_000

Way = Callable[[torch.Tensor, torch.Tensor], object]


def sglang_ways() -> dict[str, Way]:
    """SGLang's own, and its parts."""
    from sglang.kernels.ops.sampling import softmax
    from sglang.srt.layers import sampler

    def whole(logits: torch.Tensor, temperatures: torch.Tensor) -> object:
        logits.div_(temperatures)
        logits[:] = softmax(logits)
        return sampler.sampling_from_probs_torch(logits)

    def restricted(logits: torch.Tensor, temperatures: torch.Tensor) -> object:
        logits.div_(temperatures)
        logits[:] = softmax(logits)
        rows = logits.shape[0]
        ones = torch.ones(rows, device=logits.device)
        return sampler.top_k_top_p_min_p_sampling_from_probs_torch(
            logits,
            torch.full((rows,), 1 << 30, dtype=torch.int32, device=logits.device),
            0.95 * ones,
            0 * ones,
            False,
            None,
            None,
        )

    return {
        "greedy": lambda logits, _: logits.argmax(-1),
        "sglang": whole,
        "of it: temperature": lambda logits, temperatures: logits.div_(temperatures),
        "of it: softmax, copied": lambda logits, _: logits.__setitem__(slice(None), softmax(logits)),
        "of it: draw": lambda logits, _: sampler.sampling_from_probs_torch(logits),
        "top-p 0.95": restricted,
    }


def flashinfer_ways() -> dict[str, Way]:
    """Its kernel is compiled at the first call."""
    import flashinfer

    def sample(logits: torch.Tensor, temperatures: torch.Tensor) -> object:
        return flashinfer.sampling.sampling_from_logits(logits.div_(temperatures))

    return {"flashinfer": sample}


def triton_ways() -> dict[str, Way]:
    """Gumbel's maximum in one pass: each block's largest key, then the largest of the blocks."""
    import triton
    import triton.language as tl

    @triton.jit
    def largest_keys(logits, temperatures, keys, indices, seed, columns, stride, blocks, width: tl.constexpr):
        row, block = tl.program_id(0), tl.program_id(1)
        at = block * width + tl.arange(0, width)
        there = at < columns
        temperature = tl.load(temperatures + row)
        values = tl.load(logits + row.to(tl.int64) * stride + at, mask=there, other=-float("inf"))
        uniform = tl.rand(seed, row * columns + at)
        wait = tl.maximum(-tl.log(uniform), 2.9802322e-8)
        key = tl.where(there, values.to(tl.float32) / temperature - tl.log(wait), -float("inf"))
        best = tl.argmax(key, 0)
        tl.store(keys + row * blocks + block, tl.max(key, 0))
        tl.store(indices + row * blocks + block, block * width + best)

    seeds = iter(range(1, 1 << 30))
    width = 4096

    def sample(logits: torch.Tensor, temperatures: torch.Tensor) -> object:
        rows, columns = logits.shape
        blocks = triton.cdiv(columns, width)
        keys = torch.empty((rows, blocks), device=logits.device)
        indices = torch.empty((rows, blocks), dtype=torch.int32, device=logits.device)
        largest_keys[(rows, blocks)](
            logits, temperatures, keys, indices, next(seeds), columns, logits.stride(0), blocks, width=width
        )
        return indices.gather(1, keys.argmax(1, keepdim=True)).view(-1)

    return {"one pass": sample}


def ways(*, has_flashinfer: bool) -> dict[str, Way]:
    """Those that this machine has."""
    found: dict[str, Way] = {}
    for some in (sglang_ways, triton_ways, *([flashinfer_ways] if has_flashinfer else [])):
        try:
            found |= some()
        except (ImportError, RuntimeError) as error:
            print(f"{some.__name__}: {error}")
    return found


def of_rows_ms(way: Way, rows: int) -> float:
    """Of a way, each time on logits that were just written."""
    temperatures = torch.ones((rows, 1), device="cuda")
    source = torch.randn((rows, VOCAB), device="cuda")
    logits = torch.empty_like(source)
    return took_ms(lambda: way(logits, temperatures), prepare=lambda: logits.copy_(source))


def deviation(way: Way) -> float:
    """The largest distance of a token's share from its probability, in standard deviations."""
    row = torch.linspace(-6.0, 3.0, 64, device="cuda")
    counts = torch.zeros(64, device="cuda")
    rows = 10_000
    temperatures = torch.full((rows, 1), 0.8, device="cuda")
    for _ in range(DRAWS // rows):
        tokens: Any = way(row.repeat(rows, 1), temperatures)
        counts += torch.bincount(tokens.long().view(-1), minlength=64)
    wanted = torch.softmax(row / 0.8, 0)
    apart = (counts / DRAWS - wanted) / (wanted * (1 - wanted) / DRAWS).sqrt()
    return float(apart.abs().max())


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--flashinfer", action="store_true", help="compile its kernel, which takes 100 s")
    options = parser.parse_args()
    found = ways(has_flashinfer=options.flashinfer)
    rows = [(name, [of_rows_ms(way, count) for count in ROWS]) for name, way in found.items()]
    told(f"ms for {VOCAB:,} logits a row", ["way", *(f"{count} rows" for count in ROWS)], rows, options.out)
    if options.check:
        for name in ("sglang", "one pass", "flashinfer"):
            if name in found:
                print(f"{name}: at most {deviation(found[name]):.1f} standard deviations off")


if __name__ == "__main__":
    main()
