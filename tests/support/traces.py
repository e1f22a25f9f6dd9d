"""Seeded traces in every format, for tests of the replay."""

from __future__ import annotations

import json
import random
from pathlib import Path

BLOCK = 512


def mooncake_line(
    timestamp: object = 0, input_length: object = 700, output_length: object = 5, **more: object
) -> str:
    row = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length}
    blocks = -(-input_length // BLOCK) if isinstance(input_length, int) else 1
    return json.dumps(row | {"hash_ids": list(range(max(blocks, 0)))} | more)


def native_line(arrival_ms: object = 0, **more: object) -> str:
    row = {"arrival_ms": arrival_ms, "tenant": "acme", "input_tokens": 100, "output_tokens": 4}
    return json.dumps(row | more)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def mooncake_trace(
    path: Path, requests: int, *, seed: int = 1, tick_ms: int = 0, rate_rps: float = 2.0
) -> Path:
    """Poisson arrivals, some on a shared 2-block prefix; on ticks if `tick_ms` is given."""
    rng = random.Random(seed)
    lines, now_ms = [], 0.0
    for index in range(requests):
        blocks = rng.randint(1, 6)
        ids = [1, 2][:blocks] if rng.random() < 0.5 else []
        ids += [100 * index + 10 + i for i in range(blocks - len(ids))]
        at_ms = int(now_ms // tick_ms * tick_ms) if tick_ms else int(now_ms)
        length = BLOCK * blocks - rng.randint(0, BLOCK - 1)
        lines.append(mooncake_line(at_ms, length, rng.randint(1, 40), hash_ids=ids))
        now_ms += rng.expovariate(rate_rps) * 1000.0
    return write(path, *lines)
