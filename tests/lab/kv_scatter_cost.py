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
from pathlib import Path
from typing import Any

import torch
from device_time import told, took_ms

POOL, LAYERS, HEADS, KV_HEADS, WIDTH = 300_000, 32, 32, 8, 128
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
IN_BF16: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}

Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer."""


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


def attention_ms(decoding: int, context: int, prompts: int, place: str, cache: Cache) -> float:
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
    query = torch.randn((sum(queries), HEADS, WIDTH), **IN_BF16)

    def attend() -> None:
        for layer in range(LAYERS):
            keys, values = cache[layer % len(cache)]
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

    return took_ms(attend)


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    # 8 layers of their own: 9.8 GB, far more than the cache holds.
    shape = (POOL, 1, KV_HEADS, WIDTH)
    cache = [(torch.randn(shape, **IN_BF16), torch.randn(shape, **IN_BF16)) for _ in range(8)]
    rows = [
        (
            f"{decoding} x {context:,}, {prompts}",
            [attention_ms(decoding, context, prompts, place, cache) for place in PLACES],
        )
        for decoding, context, prompts in SHAPES
    ]
    head = ["decoding x context, prompts", *PLACES]
    told(f"ms of attention in {LAYERS} layers, by place of KV", head, rows, options.out)


if __name__ == "__main__":
    main()
