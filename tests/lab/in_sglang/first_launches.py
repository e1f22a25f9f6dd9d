"""Which matrix products load a kernel when launched, what that costs the host, and whether streams share it.

    python tests/lab first-launches --model llama-8b

A kernel is loaded when it is first launched; is that so in each green context? Each prefill
stream is prepared in another way; then products of random numbers of rows are launched on it, each on an idle
device. A launch that takes the host a millisecond or more has loaded something. The numbers are the same for
all streams: the first row tells of its way to prepare, the others whether a stream finds what an earlier one
has loaded, and how many kernels are known. No SGLang is needed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear

from in_sglang.partition_kernels import SHAPES
from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.partition_tables import make_table, sm_rules_of
from pdmuxd.engine.sglang.streams.cuda import CudaStreams
from pdmuxd.engine.sglang.streams.kernels import Kernels

ROWS = 8192
SLOW_S = 0.001

Product = Callable[[int], Any]
Prepare = Callable[[int, Sequence[Product]], int]
"""From a stream and products to how many kernels it knows of."""


def products_of(model: str) -> list[Product]:
    """A layer's four, of as many rows as one asks for."""
    return [_product(outputs, inputs) for inputs, outputs in SHAPES[model].values()]


def _product(out: int, width: int) -> Product:
    weight = torch.zeros((out, width), dtype=torch.bfloat16, device="cuda")
    rows = torch.zeros((ROWS, width), dtype=torch.bfloat16, device="cuda")
    return lambda count: linear(rows[:count], weight)


def nothing(_stream: int, _products: Sequence[Product]) -> int:
    """As a server would be without a warm-up."""
    return 0


def launched(counts: Iterable[int], _stream: int, products: Sequence[Product]) -> int:
    """Each of these numbers of rows once."""
    for product in products:
        for count in counts:
            product(count)
    return 0


def asked(step: int, launch: bool, stream: int, products: Sequence[Product]) -> int:
    """All multiples of a step asked which kernels they take; one product of each kernel launched."""
    kernels = Kernels(stream)
    for product in products:
        product(ROWS)
        counts = range(step, ROWS + 1, step)
        if launch:
            kernels.load(product, counts)
        else:
            for count in counts:
                kernels.are_new(partial(product, count))
    return kernels.count


WAYS: dict[str, Prepare] = {
    "asked, every 8 rows": partial(asked, 8, True),
    "launched, 64 rows apart": partial(launched, range(64, ROWS + 1, 64)),
    "asked, every row": partial(asked, 1, True),
    "asked, none launched": partial(asked, 8, False),
    "nothing": nothing,
    "asked, every 64 rows": partial(asked, 64, True),
}


def slow_launches(products: Sequence[Product], counts: Iterable[int]) -> list[float]:
    """Seconds of the launches that took long, each on an idle device."""
    slow = []
    for count in counts:
        for product in products:
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            product(count)
            took_s = time.perf_counter() - began_s
            if took_s >= SLOW_S:
                slow.append(took_s)
    return slow


def main(argv: list[str] | None = None) -> int:
    """Print a row per way."""
    parser = argparse.ArgumentParser(
        prog="python tests/lab first-launches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", default="llama-8b", choices=sorted(SHAPES))
    parser.add_argument("--counts", type=int, default=300, help="random numbers of rows")
    options = parser.parse_args(argv)
    properties = torch.cuda.get_device_properties(0)
    rules: SmRules = sm_rules_of(properties.multi_processor_count, capability=properties.major)
    table = make_table(rules, PluginEnvironment(policy="auto", link=None, partitions=None))
    streams = CudaStreams(table, 0)
    products = products_of(options.model)
    split = [group for group in streams.groups if group.prefill_sms and group.decode_sms]
    for (name, prepare), group in zip(WAYS.items(), split, strict=False):
        counts = random.Random(7).sample(range(16, ROWS), options.counts)
        with streams.on(group.prefill):
            products[0](ROWS)
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            known = prepare(int(group.prefill.cuda_stream), products)
            torch.cuda.synchronize()
            took_s = time.perf_counter() - began_s
            slow = slow_launches(products, counts)
        row = {
            "way": name,
            "prefill_sms": group.prefill_sms,
            "took_s": round(took_s, 2),
            "kernels": known,
            "slow": len(slow),
            "longest_ms": round(1e3 * max(slow, default=0.0), 1),
        }
        print(json.dumps(row), flush=True)
    return 0
