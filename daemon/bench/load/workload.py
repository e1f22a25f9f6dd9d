"""The requests of one run: when they arrive, what they ask, and what is due to them.

Everything follows from (workload, rate, seed), so that all arms get the very same requests.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pdmuxd.daemon.replay.generate import KINDS, generate
from pdmuxd.daemon.replay.trace import TraceRequest
from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.core.slo import ttft_due_s

BLOCK_TOKENS = 512
"""Mooncake names a prompt's prefix by one id per this many tokens."""
TRACES = ("conv", "code", "mooncake")
FIRST_TOKEN_ID = 300
"""Ordinary tokens start above the byte-level tokenizer's own."""
PRIME_STEP = 211
"""How far apart in an ordered trace two seeds begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftTarget:
    """When a first token is due, by the rule of every tenant: `engine/core/slo.py`."""

    fixed_s: float = 1.0
    per_1k_s: float = 1.0

    def due_s(self, new_tokens: int) -> float:
        """Seconds from arrival to when the first token is due."""
        return ttft_due_s(self.fixed_s, self.per_1k_s, new_tokens)


DEFAULT_TTFT = TtftTarget()
TENANT = "bench"
"""Whose requests all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point to measure: a trace or a generated load at a rate, or one of two probes.

    `decode`: `rate` requests at once that decode together; their gaps are the decode step.
    `prefill`: single prompts of `rate` tokens, one after the other; their TTFT is the prefill.
    """

    workload: str
    rate: float

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Read `WORKLOAD:RATE`."""
        workload, _, rate = text.partition(":")
        try:
            found = float(rate)
        except ValueError:
            found = math.nan
        if workload not in {*TRACES, *KINDS, "decode", "prefill"} or not 0.0 < found < math.inf:
            allowed = f"{', '.join((*TRACES, *KINDS))}, decode or prefill, then :RATE, such as conv:24"
            raise InvalidValueError("cells", f"{text!r} is no cell; allowed is {allowed}")
        return cls(workload=workload, rate=found)

    def __str__(self) -> str:
        return f"{self.workload}:{self.rate:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; `new_tokens` are those that no earlier request of the run has in the same prefix."""

    at_s: float
    input_tokens: int
    new_tokens: int
    output_tokens: int
    leave_after_tokens: int | None = None
    """The client goes away then, in the middle of the answer."""
    blocks: tuple[str, ...]
    """Seeds of the prompt's content, one per block."""
    block_tokens: int = BLOCK_TOKENS
    ttft: TtftTarget = DEFAULT_TTFT

    @property
    def ttft_target_s(self) -> float:
        """Seconds from arrival to the first token."""
        return self.ttft.due_s(self.new_tokens)

    @property
    def tenant(self) -> str:
        return TENANT

    def body(self, *, rid: str, vocab: int, tenant: bool) -> bytes:
        size = self.block_tokens
        tokens = ",".join(_block(block, vocab, size) for block in self.blocks[:-1])
        last = _block(self.blocks[-1], vocab, size).split(",")
        rest = self.input_tokens - size * (len(self.blocks) - 1)
        prompt = ",".join(part for part in (tokens, ",".join(last[:rest])) if part)
        sampling: dict[str, Any] = {
            "max_new_tokens": self.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        if tenant:
            sampling["custom_params"] = {"pdmuxd_tenant": self.tenant}
        head = json.dumps({"rid": rid, "stream": True, "sampling_params": sampling})
        return f'{head[:-1]}, "input_ids": [{prompt}]}}'.encode()


def build(
    cell: Cell,
    traces: Mapping[str, Sequence[Any]],
    *,
    seed: int,
    duration_s: float,
    leave_ratio: float = 0.0,
) -> list[Request]:
    """The requests of a run in the order of their arrival; a share of them are left by their client."""
    requests = _requests(cell, traces, seed=seed, duration_s=duration_s)
    rng = random.Random(f"leave/{cell}/{seed}")
    return [
        replace(request, leave_after_tokens=rng.randrange(request.output_tokens))
        if rng.random() < leave_ratio
        else request
        for request in requests
    ]


def _requests(
    cell: Cell, traces: Mapping[str, Sequence[Any]], *, seed: int, duration_s: float
) -> list[Request]:
    rng = random.Random(f"{cell}/{seed}")
    if cell.workload == "decode":
        return [_fresh(0.0, 64, 512, f"{cell}/{seed}/{i}") for i in range(int(cell.rate))]
    if cell.workload == "prefill":
        # Far enough apart for each to be alone: 8,000 tokens take 0.3 to 1.5 s.
        times = [i * duration_s / 10 for i in range(10)]
        return [_fresh(at_s, int(cell.rate), 2, f"{cell}/{seed}/{i}") for i, at_s in enumerate(times)]
    if cell.workload in KINDS:
        load = generate(cell.workload, rate_per_s=cell.rate, duration_s=duration_s, seed=seed)
        return from_trace(load, name=f"{cell}/{seed}")
    times, at_s = [], rng.expovariate(cell.rate)
    while at_s < duration_s:
        times.append(at_s)
        at_s += rng.expovariate(cell.rate)
    rows = traces[cell.workload]
    if cell.workload == "mooncake":
        return _ordered(times, rows, start=seed * PRIME_STEP % (len(rows) - len(times)), seed=seed)
    chosen = rng.sample(rows, len(times))
    return [
        _fresh(at_s, size, output, f"{cell}/{seed}/{i}")
        for i, (at_s, (size, output)) in enumerate(zip(times, chosen, strict=True))
    ]


def _fresh(at_s: float, input_tokens: int, output_tokens: int, name: str) -> Request:
    """A prompt that shares nothing with any other."""
    blocks = tuple(f"{name}/{i}" for i in range(-(-input_tokens // BLOCK_TOKENS)))
    return Request(
        at_s=at_s,
        input_tokens=input_tokens,
        new_tokens=input_tokens,
        output_tokens=output_tokens,
        blocks=blocks,
    )


def _ordered(times: Sequence[float], rows: Sequence[Any], *, start: int, seed: int) -> list[Request]:
    """Consecutive requests of a trace with its shared prefixes."""
    seen: set[int] = set()
    requests = []
    for at_s, (input_tokens, output_tokens, ids) in zip(times, rows[start:], strict=False):
        shared = next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
        requests.append(
            Request(
                at_s=at_s,
                input_tokens=input_tokens,
                # The last token of a prompt is never taken from the cache.
                new_tokens=max(1, input_tokens - shared * BLOCK_TOKENS),
                output_tokens=output_tokens,
                blocks=tuple(f"mooncake/{seed}/{block}" for block in ids),
            )
        )
    return requests


def from_trace(rows: Sequence[TraceRequest], *, name: str, ttft: TtftTarget = DEFAULT_TTFT) -> list[Request]:
    """The requests of a trace in order of arrival; equal prefix ids become equal text.

    `new_tokens` counts what no earlier one of these requests has in the same prefix.
    """
    seen: set[int] = set()
    found = []
    for number, row in enumerate(rows):
        size = row.block_tokens or BLOCK_TOKENS
        shared = next((i for i, block in enumerate(row.prefix_ids) if block not in seen), len(row.prefix_ids))
        seen.update(row.prefix_ids)
        blocks = [f"{name}/shared/{block}" for block in row.prefix_ids]
        alone = range(len(blocks), -(-row.input_tokens // size))
        found.append(
            Request(
                at_s=row.arrival_s,
                input_tokens=row.input_tokens,
                new_tokens=max(1, row.input_tokens - shared * size),
                output_tokens=row.output_tokens,
                blocks=(*blocks[: -(-row.input_tokens // size)], *(f"{name}/{number}/{i}" for i in alone)),
                block_tokens=size,
                ttft=ttft,
            )
        )
    return found


@cache
def _block(name: str, vocab: int, size: int) -> str:
    """So many token ids, always the same for one name."""
    rng = random.Random(name)
    return ",".join(str(rng.randrange(FIRST_TOKEN_ID, vocab)) for _ in range(size))
