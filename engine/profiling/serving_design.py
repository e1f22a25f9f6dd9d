"""The points of a campaign that knows where serving will be.

Prefill has one law for all SM counts, so each of them needs few points and long ones are spread over them. Of
fused batches every graph is measured with few and with many that decode, and those of 512 to 1,536 tokens,
which busy steps are, once more with 64 to 200 that decode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pdmuxd.engine.profiling.measurement import Point, Target

Lengths = tuple[tuple[int, int], ...]
"""(new, reused) tokens per request."""

EACH: tuple[Lengths, ...] = tuple(((new, 0),) for new in (32, 128, 256, 512, 768, 1024, 2048))
"""On every SM count: short batches, where weights, tiles and compute change places."""
IN_TURN: tuple[tuple[Lengths, ...], ...] = (
    tuple(((new, 0),) for new in (150, 440, 1200, 300, 700, 1700, 64, 600, 900)),
    tuple(((new, 0),) for new in (3072, 4096, 2500, 1536, 3600)),
    tuple(((new, 0),) for new in (8192, 5000, 12288, 6144, 16384, 10000)),
    tuple(
        ((new, reused),) for new, reused in ((128, 8192), (512, 2048), (1024, 8192), (256, 2048), (64, 2048))
    ),
    tuple(((new, reused),) for new, reused in ((512, 32768), (2048, 8192), (128, 32768), (4096, 8192))),
    tuple(
        ((new, reused),) * count
        for count, new, reused in ((4, 128, 0), (8, 64, 0), (4, 256, 2048), (2, 700, 0))
    ),
    tuple(((new, reused),) * count for count, new, reused in ((16, 32, 0), (6, 300, 0), (2, 1024, 2048))),
)
"""Each row is dealt out to the SM counts in turn, one at least to each."""

GRAPHS = (16, 32, 64, 128, 192, 256, 384, 512, 640, 768, 832, 1024, 1152, 1280, 1536, 2048)
"""Tokens of fused batches where no graph is captured."""
MOST_TOKENS = 2560
BUSY_TOKENS = (512, 1792)
"""Of the steps that hold a busy engine's latency target (one H100, TBT 50 ms, 2026-11-25)."""
BUSY_REQUESTS = (64, 200)
BUSY_POINTS = 2
"""Further points for each graph of such a size."""
CONTEXTS = (128, 8192)
KV_SHARE = 0.5
"""Of the KV pool, what the contexts of a fused batch may take: they were cut to it on a GPU of 80 GB."""
REUSED = (0, 2048, 0, 8192, 0)
PROMPTS = (1, 1, 4, 1, 2)
_GOLDEN, _SILVER = (math.sqrt(5.0) - 1.0) / 2.0, math.sqrt(2.0) - 1.0
"""Multiples of these, modulo 1, fill the unit interval evenly, and together the square."""


def prefill_design(target: Target, sms: int) -> list[Point]:
    """Prefills for one of the SM counts, the short ones first."""
    sizes = target.prefill_sizes
    turn = sizes.index(sms)
    batches = list(EACH)
    for row in IN_TURN:
        batches += row[turn :: len(sizes)] or row[turn % len(row) :][:1]
    return [Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=batch) for batch in batches]


def fused_design(target: Target) -> list[Point]:
    """Fused batches over the region that serves, those of busy steps first."""
    captured = target.hello.captured_fused_tokens
    sizes = [size for size in captured or GRAPHS if 16 <= size <= MOST_TOKENS]
    low, high = BUSY_TOKENS
    busy = [size for size in sizes if low <= size <= high]
    wide = (1, max(1, target.hello.max_decode_bs))
    number = 0
    points: list[Point] = []
    for within, some in ((BUSY_REQUESTS, busy * BUSY_POINTS), (wide, sizes * (2 if captured else 4))):
        for size in some:
            number += 1
            points.append(_fused(target, size, within, number, is_many=number % 2 == 0))
    return list(dict.fromkeys(points))


def _fused(target: Target, size: int, requests: tuple[int, int], number: int, *, is_many: bool) -> Point:
    sms, model = target.hello.total_sms, target.model
    low, high = requests
    # Half of the points have more than the middle of the range, so that each size has few and many.
    place = 0.5 * (_fraction(_GOLDEN * number) + is_many)
    bs = max(1, min(round(low * (high / low) ** place), size // 2, target.hello.max_decode_bs))
    prompts = min(PROMPTS[number % len(PROMPTS)], max(1, (size - bs) // 16))
    reused = REUSED[number % len(REUSED)]
    context = round(CONTEXTS[0] * (CONTEXTS[1] / CONTEXTS[0]) ** _fraction(_SILVER * number))
    room = int(target.kv_tokens * KV_SHARE) - prompts * (reused + size)
    context = max(1, min(context, room // bs, model.max_context_tokens - 1))
    reused = min(reused, max(0, model.max_context_tokens - size))
    return Point(
        mode="fused",
        prefill_sms=sms,
        decode_sms=sms,
        prefill=tuple(_shared(size - bs, prompts, reused)),
        decode=(context,) * bs,
    )


def _shared(tokens: int, prompts: int, reused: int) -> Iterator[tuple[int, int]]:
    """So many tokens of several prompts; the first continues a longer one."""
    for number in range(prompts):
        yield tokens // prompts + (tokens % prompts if not number else 0), 0 if number else reused


def _fraction(x: float) -> float:
    return x - math.floor(x)
