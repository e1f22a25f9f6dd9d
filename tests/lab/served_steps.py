"""What a served load's step records say of decode alone, of splits, and of turns in which decode stood still:
`served-steps STEPS PROFILE`.

STEPS is what `late-behind --steps` wrote, gzipped or not; PROFILE an exported profile of the same GPUs and
model, whose fit of decode is taken. With `--kv-heads`, also how often FlashAttention-3 would cut the KV of so
many requests into more pieces than there are SMs (hopper/flash_prepare_scheduler.cu), if their lengths were
the load's. Of splits: the guard's bound over what steps took, the scatter of steps beside one prompt with one
batch size, and a bound from what the prompt in flight has shown (`--margin`) in place of the guard's.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from late_behind import LOADS, SIGMA

from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.link.predictors import latency_model
from pdmuxd.engine.profiling.document import read_file

Step = dict[str, Any]
DRAWS, BLOCK_TOKENS, MARGIN = 4000, 128, 1.1
"""Batches, tokens of a block of KV, and FlashAttention-3's margin."""
SEEN_STEPS, ENOUGH = 2, 10
"""Steps of a prompt before it bounds others, and those of one prompt and batch size whose scatter is told."""
STOOD_STILL_MS, IDLE_MS = 20.0, 400.0
"""What lies between two steps beyond the second one: what is told, and from when on nobody had decoded."""


def quantiles(values: Sequence[float]) -> str:
    """p10, p50, p90, p99."""
    return ", ".join(f"{value:.3f}" for value in np.quantile(values, (0.1, 0.5, 0.9, 0.99)))


def second_waves(requests: int, load: str, kv_heads: int, sms: int) -> float:
    """The share of batches whose KV is cut into more pieces than there are SMs."""
    rng, mean = random.Random(requests), math.log(LOADS[load][1]) - SIGMA**2 / 2
    found = 0
    for _ in range(DRAWS):
        blocks = [math.ceil(rng.lognormvariate(mean, SIGMA) / BLOCK_TOKENS) for _ in range(requests)]
        piece = max(1, math.ceil(MARGIN * sum(blocks) * kv_heads / sms))
        found += kv_heads * sum(math.ceil(each / piece) for each in blocks) > sms
    return found / DRAWS


def tell_decode(steps: Iterable[Step], profile: Path, kv_heads: int) -> None:
    """Print measured over predicted by requests."""
    read = read_file(profile)
    latency, sms = latency_model(read.predictors(0), read.roofline), read.total_sms
    ratios, load = defaultdict[int, list[float]](list), ""
    for step in steps:
        if step["mode"] == "decode" and step["measured_ms"]:
            load = step["cell"].split()[0]
            shape = DecodeShape(bs=step["decode_bs"], reused_tokens=step["decode_reused_tokens"])
            ratios[shape.bs].append(step["measured_ms"] / (1e3 * latency.decode_s(shape, sms)))
    for requests, found in sorted(ratios.items()):
        waves = f"; {second_waves(requests, load, kv_heads, sms):.0%} in two waves" if kv_heads else ""
        print(f"decode of {requests}: {len(found)} steps, over prediction {quantiles(found)}{waves}")


def tell_splits(steps: Sequence[Step], margin: float) -> None:
    """Print what steps beside layers took, and how near bounds lie."""
    splits = [one for one in steps if one["mode"] == "split" and one["guard_ratio"] and one["predicted_ms"]]
    took = [one["measured_ms"] / one["predicted_ms"] for one in splits]
    if not took:
        return
    bounds = {"the guard": [one["guard_ratio"] for one in splits], "the prompt": []}
    beside, groups = None, defaultdict[tuple[object, ...], list[float]](list)
    for one, ratio in zip(splits, took, strict=True):
        prompt = one["cell"], one["prefill_new_tokens"]
        if prompt != beside:
            beside, shares = prompt, []
        seen = min(1.0, margin * max(shares)) if len(shares) >= SEEN_STEPS else 1.0
        bounds["the prompt"].append(one["guard_ratio"] * seen)
        shares.append(ratio / one["guard_ratio"])
        groups[(*prompt, one["decode_sms"], one["decode_bs"])].append(ratio)
    print(f"beside layers: {len(took)} steps, over prediction {quantiles(took)}, at most {max(took):.2f}")
    for name, bound in bounds.items():
        over = sum(some < each for some, each in zip(bound, took, strict=True)) / len(took)
        mean = np.mean([some / each for some, each in zip(bound, took, strict=True)]) - 1
        print(f"  bounded by {name}: {over:.1%} pass, it lies {mean:.0%} above")
    scatter = [each / np.mean(some) for some in groups.values() if len(some) >= ENOUGH for each in some]
    if scatter:
        print(f"  of one prompt and batch size, over their mean: {quantiles(scatter)}")


def at_ms(step: Step) -> float:
    """When a step was read."""
    return 1e3 * datetime.datetime.fromisoformat(step["at"]).timestamp()


def tell_standstills(steps: Sequence[Step]) -> None:
    """Print the turns in which decode stood still, each with its cell and the prompts about it."""
    for at, (before, step) in enumerate(itertools.pairwise(steps), 1):
        still_ms = at_ms(step) - at_ms(before) - step["measured_ms"]
        is_one = before["cell"] == step["cell"] and before["decode_bs"] and step["decode_bs"]
        if is_one and STOOD_STILL_MS < still_ms < IDLE_MS:
            prompts = dict.fromkeys(one["prefill_new_tokens"] for one in steps[at - 1 : at + 4])
            gap_ms = at_ms(step) - at_ms(before)
            print(f"stood still {still_ms:.0f} ms (gap {gap_ms:.0f}) in {step['cell']}; tokens {[*prompts]}")


def main() -> None:
    """Read, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", type=Path)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--kv-heads", type=int, default=0, help="of one GPU")
    parser.add_argument("--margin", type=float, default=1.09, help="over the largest step so far")
    options = parser.parse_args()
    data = options.steps.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    steps = sorted(map(json.loads, text.splitlines()), key=at_ms)
    tell_decode(steps, options.profile, options.kv_heads)
    tell_splits(steps, options.margin)
    tell_standstills(steps)


if __name__ == "__main__":
    main()
