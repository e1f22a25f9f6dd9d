"""What attention takes on a GPU by where the KV of its tokens lies: needs SGLang and a GPU.

    python tests/lab kv-scatter-cost --out FILE

A campaign gives each made-up request consecutive slots from the first on; in serving each step takes one slot
for each request, and slots come back in the order in which answers end. Llama-8B's attention (32 query
heads, 8 of KV, 128 wide, pages of one token), a pool of 300,000 tokens, FlashAttention 3, decode
alone and with prompts of 200 tokens beside it, where the slots are: `first` (consecutive, as a campaign's
were), `apart` (each request's consecutive, at random places), `by turns` (the requests' last 46 tokens by
turns, as steps give them), `random` (every token anywhere). Milliseconds of 32 layers, median of 30 runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

POOL, LAYERS, HEADS, KV_HEADS, WIDTH = 300_000, 32, 32, 8, 128
RUNS = 30
PROMPT = 200
SHAPES = (
    (64, 230, 0),
    (128, 230, 0),
    (192, 230, 0),
    (192, 230, 4),
    (64, 1_260, 0),
    (64, 1_260, 4),
    (16, 12_000, 0),
)
"""Requests that decode, their contexts in tokens, prompts beside them."""
PLACES = ("first", "apart", "by turns", "random")
OF_STEPS = 46


def slots(place: str, lengths: list[int]) -> list[torch.Tensor]:
    """For each request the slots of its tokens."""
    total = sum(lengths)
    if place == "random":
        return list((torch.randperm(POOL)[:total]).split(lengths))
    if place == "first":
        return list(torch.arange(total).split(lengths))
    width = max(lengths)
    starts = torch.randperm(POOL // width)[: len(lengths)] * width
    found = [start + torch.arange(length) for start, length in zip(starts, lengths, strict=True)]
    if place == "by turns":
        free = torch.randperm(POOL // len(lengths))[:OF_STEPS] * len(lengths)
        for index, one in enumerate(found):
            last = min(OF_STEPS, len(one))
            one[-last:] = free[:last] + index
    return found


def took_ms(decoding: int, context: int, prompts: int, place: str, cache: tuple[torch.Tensor, ...]) -> float:
    """Of 32 layers."""
    from sglang.srt.layers.attention.flashattention_backend import flash_attn_with_kvcache

    lengths = [context] * decoding + [PROMPT] * prompts
    queries = [1] * decoding + [PROMPT] * prompts
    table = torch.zeros((len(lengths), max(lengths)), dtype=torch.int32)
    for row, one in enumerate(slots(place, lengths)):
        table[row, : len(one)] = one
    table = table.cuda()
    seen = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    starts = torch.tensor([0, *torch.tensor(queries).cumsum(0)], dtype=torch.int32, device="cuda")
    query = torch.randn((sum(queries), HEADS, WIDTH), dtype=torch.bfloat16, device="cuda")
    took = []
    for _ in range(3 + RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # so that launching is not in it
        begin.record()
        for layer in range(LAYERS):
            keys, values = cache[2 * (layer % (len(cache) // 2)) : 2 * (layer % (len(cache) // 2)) + 2]
            flash_attn_with_kvcache(
                q=query,
                k_cache=keys,
                v_cache=values,
                page_table=table,
                cache_seqlens=seen,
                cu_seqlens_q=starts,
                max_seqlen_q=max(queries),
                softmax_scale=WIDTH**-0.5,
                causal=True,
                num_splits=0,
                ver=3,
            )
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    return median(took[3:])


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    # 8 layers of their own: 9.8 GB, far more than the cache holds.
    cache = tuple(
        torch.randn((POOL, 1, KV_HEADS, WIDTH), dtype=torch.bfloat16, device="cuda") for _ in range(16)
    )
    rows = []
    table = Table(title=f"{torch.cuda.get_device_name()}: ms of attention in {LAYERS} layers, by place of KV")
    for column in ("decoding x context, prompts", *PLACES):
        table.add_column(column)
    for decoding, context, prompts in SHAPES:
        took = {place: took_ms(decoding, context, prompts, place, cache) for place in PLACES}
        rows.append({"decoding": decoding, "context": context, "prompts": prompts, "ms": took})
        table.add_row(f"{decoding} x {context:,}, {prompts}", *(f"{took[place]:.3f}" for place in PLACES))
    Console(width=110).print(table)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
