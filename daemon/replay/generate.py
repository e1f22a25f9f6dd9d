"""Loads of documented shape, for kinds of traffic that have no public trace.

Lengths are log-normal, cut off at both ends; arrivals are Poisson. The same kind, rate, duration and seed
give the same requests everywhere. The shapes are this project's own, chosen after what operators describe:
use them to compare, and a recorded trace to predict.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log

from pdmuxd.daemon.replay.trace import TraceRequest

LEAST_TOKENS = 8
MOST_TOKENS = 120_000
"""A session ends before its next call would be longer."""
BLOCK_TOKENS = 256
"""Of the prefixes that an agent's calls share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A log-normal number of tokens."""

    median: float
    sigma: float
    """Of the logarithm."""
    most: int

    def draw(self, rng: random.Random) -> int:
        return min(self.most, max(LEAST_TOKENS, round(rng.lognormvariate(log(self.median), self.sigma))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of request within a load."""

    share: float
    input_tokens: Lengths
    output_tokens: Lengths
    tenant: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A load."""

    about: str
    parts: tuple[Part, ...]
    turns: int = 1
    """Calls of a session, each with the whole session before it as its prefix; 1 for requests that share
    nothing. `rate` counts calls."""
    think_s: float = 0.0
    """Mean pause between a session's calls."""


def _part(share: float, new: tuple[float, float, int], out: tuple[float, float, int], tenant: str) -> Part:
    make = [Lengths(median=median, sigma=sigma, most=most) for median, sigma, most in (new, out)]
    return Part(share=share, input_tokens=make[0], output_tokens=make[1], tenant=tenant)


KINDS: Mapping[str, Kind] = {
    "chat": Kind(
        about="a line or two, and a short answer",
        parts=(_part(1.0, (120, 0.85, 2_000), (20, 0.6, 200), "chat"),),
    ),
    "summaries": Kind(
        about="an article's text, and a summary of it",
        parts=(_part(1.0, (2_300, 0.5, 16_000), (110, 0.5, 400), "summaries"),),
    ),
    "documents": Kind(
        about="long documents, and short questions between them",
        parts=(
            _part(0.35, (30_000, 0.5, 100_000), (150, 0.6, 800), "documents"),
            _part(0.65, (250, 0.9, 2_000), (120, 0.6, 800), "questions"),
        ),
    ),
    "tools": Kind(
        about="calls of tools: most are small, some carry documents",
        parts=(
            _part(0.6, (400, 1.0, 4_000), (60, 0.7, 400), "small"),
            _part(0.4, (22_000, 0.6, 60_000), (60, 0.7, 400), "large"),
        ),
    ),
    "agents": Kind(
        about="coding agents: sessions of calls that each repeat what came before and add to it",
        parts=(_part(1.0, (2_500, 0.9, 20_000), (250, 0.7, 2_000), "agents"),),
        turns=20,
        think_s=8.0,
    ),
    "reasoning": Kind(
        about="short questions, and long answers",
        parts=(_part(1.0, (180, 0.8, 4_000), (1_100, 0.7, 8_000), "reasoning"),),
    ),
}


def generate(
    name: str, *, rate_per_s: float, duration_s: float, seed: int, kinds: Mapping[str, Kind] = KINDS
) -> list[TraceRequest]:
    """The requests of a load in the order of their arrival. Raises: KeyError for an unknown kind."""
    kind = kinds[name]
    rng = random.Random(f"{name}/{rate_per_s:g}/{duration_s:g}/{seed}")  # noqa: S311 - no secret
    found = _sessions(kind, rng, rate_per_s, duration_s)
    rows = sorted(found, key=lambda row: row[0])
    return [
        TraceRequest(
            line=number,
            arrival_s=at_s,
            tenant=part.tenant,
            input_tokens=size,
            output_tokens=output,
            prefix_ids=ids[: size // BLOCK_TOKENS],
            answer_ids=ids[size // BLOCK_TOKENS :],
            block_tokens=BLOCK_TOKENS if ids else 0,
        )
        for number, (at_s, part, size, output, ids) in enumerate(rows, start=1)
    ]


def _sessions(
    kind: Kind, rng: random.Random, rate_per_s: float, duration_s: float
) -> Iterator[tuple[float, Part, int, int, tuple[int, ...]]]:
    """(arrival, part, input tokens, output tokens, ids of the blocks of both). Sessions begin before the load
    does, so that it has calls of all turns from its first second on."""
    weights = [part.share for part in kind.parts]
    lead_s = kind.turns * kind.think_s
    at_s, block = -lead_s, 0
    while (at_s := at_s + rng.expovariate(rate_per_s / kind.turns)) < duration_s:
        call_s, history, ids = at_s, 0, ()
        for _ in range(kind.turns):
            part = rng.choices(kind.parts, weights=weights)[0]
            new, output = part.input_tokens.draw(rng), part.output_tokens.draw(rng)
            size = history + new
            if size > MOST_TOKENS:
                break
            if kind.turns > 1:
                wanted = (size + output) // BLOCK_TOKENS
                ids = (*ids, *range(block, block + wanted - len(ids)))
                block += wanted
            if 0.0 <= call_s < duration_s:
                yield call_s, part, size, output, ids
            history = size + output
            call_s += rng.expovariate(1.0 / kind.think_s) if kind.think_s else 0.0
