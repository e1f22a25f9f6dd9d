"""What taking and giving back a GPU's memory waits for, as PyTorch's allocator does it: needs a GPU.

    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python tests/lab memory-given-back

Ten streams keep what a prefill of Llama-8B took (11.6 GiB in 100 pieces). Milliseconds of the host: until
memory is taken while 800 small products run, until all is given back while the device is idle and while it
works for 0.1 s, and until one stream has 3 GiB where the others keep all; also, until that can be used.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch

PIECES_MIB = (470, 235, 64, 64, 96, 128, 64, 32, 16, 8)
LARGE_MIB = (1024, 512, 256, 128)
STREAMS, REPEATS, PRODUCTS, WIDTH = 10, 3, 800, 2048
WORK_CYCLES = 180_000_000
LEFT_GIB, WANTED_MIB = 20, 3072


def clocked(call: Callable[[], Any]) -> float:
    """Milliseconds of the host."""
    begin_s = time.perf_counter()
    call()
    return round(1e3 * (time.perf_counter() - begin_s), 2)


def taken(stream: torch.cuda.Stream, mib: int) -> torch.Tensor:
    """Memory for tensors of a stream."""
    with torch.cuda.stream(stream):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def kept(streams: list[torch.cuda.Stream], pieces: tuple[int, ...]) -> None:
    """Let each stream keep such pieces."""
    for stream in streams:
        held = [taken(stream, mib) for mib in pieces]
        del held
    torch.cuda.synchronize()


def work(stream: torch.cuda.Stream) -> None:
    """Keep the device busy, but hardly any of its SMs."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(WORK_CYCLES)


def given_back(streams: list[torch.cuda.Stream], busy: torch.cuda.Stream, *, works: bool) -> list[float]:
    """What it takes to give back all that the streams keep."""
    found = []
    for _ in range(REPEATS):
        kept(streams, PIECES_MIB)
        if works:
            work(busy)
        found.append(clocked(torch.cuda.empty_cache))
        torch.cuda.synchronize()
    return found


def taken_beside(streams: list[torch.cuda.Stream], busy: torch.cuda.Stream) -> list[float]:
    """What it takes to take a large piece while products run."""
    with torch.cuda.stream(busy):
        factor = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
        product = factor @ factor
    found = []
    for stream in streams[:REPEATS]:
        with torch.cuda.stream(busy):
            for _ in range(PRODUCTS):
                torch.mm(factor, factor, out=product)
        found.append(clocked(lambda stream=stream: taken(stream, PIECES_MIB[0])))
        torch.cuda.synchronize()
    return found


def wanted(streams: list[torch.cuda.Stream], busy: torch.cuda.Stream) -> dict[str, float]:
    """What it takes to have memory where other streams keep all."""
    ballast = []
    while torch.cuda.mem_get_info()[0] > LEFT_GIB << 30:
        ballast.append(torch.empty(2 << 30, dtype=torch.uint8, device="cuda"))
    kept(streams, LARGE_MIB)
    new, work_ms = torch.cuda.Stream(), clocked(lambda: (work(busy), busy.synchronize()))
    work(busy)
    begin_s = time.perf_counter()
    piece = taken(new, WANTED_MIB)
    taken_s = time.perf_counter() - begin_s
    with torch.cuda.stream(new):
        piece.zero_()
    new.synchronize()
    used_ms = 1e3 * (time.perf_counter() - begin_s)
    return {"taken_ms": round(1e3 * taken_s, 2), "used_ms": round(used_ms, 2), "work_ms": work_ms}


def main() -> None:
    """Print one line of JSON."""
    streams, busy = [torch.cuda.Stream() for _ in range(STREAMS)], torch.cuda.Stream()
    work(busy)
    found: dict[str, Any] = {"allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")}
    found["taken_beside_products_ms"] = taken_beside(streams, busy)
    torch.cuda.empty_cache()
    found["given_back_idle_ms"] = given_back(streams, busy, works=False)
    found["given_back_working_ms"] = given_back(streams, busy, works=True)
    found["all_kept_by_others"] = wanted(streams, busy)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
