"""What eviction from SGLang's prefix cache costs the host, which it does before a long prefill begins.

    python tests/lab evictions --device cuda --json evictions.json

Needs SGLang's Python, no server and no model: a pool of slots, its allocator and SGLang's own tree, full of
answers of one length that were never asked for again. Evicting room for a prompt frees leaf by leaf. At once
is what SGLang does when it forms a prefill; a slice is what is evicted in a turn of the loop before that.
On a GPU a matrix product runs meanwhile, as a step does.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from pdmuxd.engine.sglang.internals.room import SLICE_TOKENS

LEAVES = (150, 400, 2000)
"""Tokens of an answer's own part of the tree: a chat's turn, a longer one, a document."""
PROMPTS = (8192, 32_768, 65_536)
VOCABULARY = 100_000
ROUNDS = 3


def full_cache(device: str, size: int, leaf: int) -> UnifiedRadixCache:
    """A tree that holds all of `size` slots, in leaves of so many tokens."""
    allocator = TokenToKVPoolAllocator(size, torch.bfloat16, device, MagicMock(), need_sort=False)
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=MagicMock(),
        token_to_kv_pool_allocator=allocator,
        page_size=1,
        tree_components=(ComponentType.FULL,),
    )
    cache, ids = UnifiedRadixCache(params), random.Random(1)
    for first in range(size // leaf):
        # The first token tells them apart, so that nothing is shared.
        key = array("q", [first, *ids.choices(range(VOCABULARY), k=leaf - 1)])
        cache.insert(InsertParams(key=RadixKey(key, None), value=allocator.alloc(leaf)))
    return cache


def evict_ms(cache: UnifiedRadixCache, tokens: int) -> float:
    """The host's time."""
    begin_s = time.perf_counter()
    cache.evict(EvictParams(num_tokens=tokens))
    return 1e3 * (time.perf_counter() - begin_s)


def row(device: str, size: int, leaf: int, prompt: int) -> dict[str, Any]:
    """At once and in slices, the longest of each."""
    at_once, slices = [], []
    for _ in range(ROUNDS):
        cache = full_cache(device, size, leaf)
        evict_ms(cache, SLICE_TOKENS)
        if device == "cuda":
            busy = torch.zeros((8192, 8192), dtype=torch.bfloat16, device=device)
            for _ in range(10):
                busy = busy @ busy
        at_once.append(evict_ms(cache, prompt))
        slices += [evict_ms(cache, SLICE_TOKENS) for _ in range(prompt // SLICE_TOKENS)]
        if device == "cuda":
            torch.cuda.synchronize()
    slices.sort()
    return {
        "leaf_tokens": leaf,
        "prompt_tokens": prompt,
        "at_once_ms": [round(value, 2) for value in at_once],
        "slice_p50_ms": round(slices[len(slices) // 2], 3),
        "slice_longest_ms": round(slices[-1], 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a line for each length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)")
    parser.add_argument("--slots", type=int, default=200_000, help="of the pool (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = []
    for leaf in LEAVES:
        for prompt in PROMPTS:
            rows.append(row(args.device, args.slots, leaf, prompt))
            print(json.dumps(rows[-1]), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"device": args.device, "slots": args.slots, "rows": rows}))
    return 0
