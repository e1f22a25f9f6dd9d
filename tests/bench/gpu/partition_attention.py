"""Does attention on a partition run better if FlashAttention-3 is told of its SMs (`sm_margin`)? Times decode and
prefill of Llama-8B's heads on green contexts. Needs a GPU and sgl-kernel, no server.

    python partition_attention.py --out FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from partition_products import TOTAL, alone_ms, part
from sgl_kernel.flash_attn import flash_attn_with_kvcache, get_scheduler_metadata

HEADS, KV_HEADS, DIM = 32, 8, 128
DECODE = [
    (sms, bs, context) for sms in (16, 24, 32, 48) for bs in (4, 16, 64, 128) for context in (512, 2048, 8192)
]
PREFILL = [
    (sms, new, reused)
    for sms in (112, 104, 96)
    for new, reused in ((512, 0), (1024, 0), (2048, 0), (8192, 0), (512, 8192), (2048, 16384))
]
LAYERS = 4
_kept: list[object] = []
"""Layers with KV of their own."""


def captured(stream, launches):
    with torch.cuda.stream(stream):
        launches()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launches()
    _kept[:] = [launches]
    return graph


def attention(bs: int, new: int, context: int, margin: int, splits: int, decode: bool):
    tokens = bs * context
    caches = [
        torch.randn(2, tokens, 1, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)
    ]
    table = torch.arange(tokens, device="cuda", dtype=torch.int32).view(bs, context)
    lengths = torch.full((bs,), context, device="cuda", dtype=torch.int32)
    starts = torch.arange(0, bs * new + 1, new, device="cuda", dtype=torch.int32)
    q = torch.randn(bs * new, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    schedule = None
    torch.cuda.synchronize()
    if decode:
        schedule = get_scheduler_metadata(
            batch_size=bs,
            max_seqlen_q=1,
            max_seqlen_k=context,
            num_heads=HEADS,
            num_heads_k=KV_HEADS,
            headdim=DIM,
            cache_seqlens=lengths,
            qkv_dtype=torch.bfloat16,
            cu_seqlens_q=starts,
            page_size=1,
            causal=True,
            num_splits=splits,
            sm_margin=margin,
        )

    torch.cuda.synchronize()

    def launches():
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

    return launches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    with (options.out / "attention.jsonl").open("a") as file:
        streams = {}
        for decode, points in ((True, DECODE), (False, PREFILL)):
            for sms, a, b in points:
                stream = streams.setdefault(sms, part(sms))
                bs, new, context = (a, 1, b) if decode else (1, a, a + b)
                found = {}
                for label, margin, splits in (
                    ("as it is", 0, 0),
                    ("told", TOTAL - sms, 0),
                    ("one split", TOTAL - sms, 1),
                ):
                    try:
                        graph = captured(stream, attention(bs, new, context, margin, splits, decode))
                        found[label] = round(alone_ms(graph, stream, repeats=5) / LAYERS, 5)
                    except RuntimeError as error:
                        found[label] = None
                        print(label, str(error)[:100], flush=True)
                row = {"decode": decode, "sms": sms, "bs": bs, "new": new, "context": context, "ms": found}
                print(json.dumps(row), file=file, flush=True)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
