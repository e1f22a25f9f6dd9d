"""Fused batches: what is in the next chunk, how large it may be, and how long a batch takes in chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from pdmuxd.engine.core.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.latency_margin import LatencyMargin
from pdmuxd.engine.core.types import Observation, PrefillShape, PrefillView, WaitingRequest

FUSED_MARGIN = 0.95
"""A fused step is planned for this share of the TBT target; no guard covers it."""

BUDGET_LADDER = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
"""Prompt tokens of a fused step that are weighed where no step is launched; the first is the least in any."""
STEP_TOKENS = (
    *range(32, 321, 32),
    *range(512, 1537, 128),
    *range(1792, 2561, 256),
    *(3072, 4096, 8192),
)
"""Tokens of a fused step that are considered, decoding requests included: sizes of graphs, which take the
same time whether their last rows are used or not. Not 384, which takes almost what 512 do (one H200,
Llama-8B, while serving: 13.9 and 14.6 ms, and 11.7 for 320): at a target of 20 ms its prompts are better
split (conversation at 24/s in the emulator: 92% good, and 82% with it)."""


def fused_budget(
    obs: Observation,
    batch: tuple[WaitingRequest, ...],
    latency: LatencyModel,
    total_sms: int,
    *,
    target_s: float,
    latency_margin: LatencyMargin,
    size_correction: BatchSizeCorrection,
    must: bool,
) -> tuple[int, float]:
    """The most prompt tokens whose fused step meets a TBT target even if it takes what few steps of its size
    exceed, and its predicted seconds; (0, 0) if none.

    `must`: where the host alone takes longer than the target, the most that takes no longer than that.

    What is gone of the running gap is counted. Never more than what waits by the estimate: a prefix that
    has left the cache since must not make the step longer than planned.
    """
    left_s = target_s * FUSED_MARGIN
    gone_s = max(0.0, obs.now_s - obs.last_token_s) if obs.decode.bs else 0.0
    if latency_margin.floor_s > left_s - gone_s:
        if not must:
            return 0, 0.0
        left_s = latency_margin.floor_s + gone_s
    left_s = left_s / latency_margin.ratio - gone_s
    bs = obs.decode.bs
    low, step_s, tokens = bisect_right(STEP_TOKENS, bs), 0.0, 0
    high = len(STEP_TOKENS)
    while low < high:
        middle = (low + high) // 2
        chunk = PrefillShape.of(chunk_lengths(obs.prefill, batch, STEP_TOKENS[middle] - bs))
        predicted_s = latency.fused_s(chunk, obs.decode, total_sms)
        if predicted_s * size_correction.ratio(chunk.new_tokens + bs) <= left_s:
            low, step_s, tokens = middle + 1, predicted_s, chunk.new_tokens
        else:
            high = middle
    return tokens, step_s


def fused_total_s(
    obs: Observation,
    shape: PrefillShape,
    budget: int,
    latency: LatencyModel,
    total_sms: int,
    *,
    size_correction: BatchSizeCorrection,
) -> float:
    """Seconds that a whole batch typically takes in fused steps: each chunk reads what came before it, which
    is half on average."""
    new, reused = shape.new_tokens, shape.reused_tokens
    tokens = min(new, budget)
    chunk = PrefillShape.of([(tokens, reused + (new - tokens) // 2)])
    step_s = latency.fused_s(chunk, obs.decode, total_sms) * size_correction.ratio(tokens + obs.decode.bs)
    return step_s * -(-new // budget)


def chunk_lengths(
    prefill: PrefillView | None, batch: Iterable[WaitingRequest], budget_tokens: int
) -> Iterator[tuple[int, int]]:
    """(new, reused) of the requests in the next chunk: the prefill under way first, then `batch` in order."""
    if prefill is not None:
        done = prefill.done_tokens
        for request in prefill.requests:
            tokens = min(budget_tokens, request.new_tokens - done)
            if tokens > 0:
                budget_tokens -= tokens
                yield tokens, request.reused_tokens + done
            done = 0
    for request in batch:
        tokens = min(budget_tokens, request.new_tokens)
        if tokens <= 0:
            return
        budget_tokens -= tokens
        yield tokens, request.reused_tokens
