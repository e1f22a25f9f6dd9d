"""Adaptive wait-depth batching: how long short prefills wait for company, and which go together.

Two thresholds adapt: a window W (how long the first may wait for others) and a depth D (how many are worth
a captured graph). All functions are pure; times are seconds on the engine's clock.

Source: PLA-Serve section 3.1, algorithm 1; section 3.2 (a) for W(t), (b) for the deadline-free mode. As
printed, algorithm 1 only ever lowers D; here D follows the depth that was dispatched both ways, and it says
when to stop waiting, not how many may go: a backlog is served at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdmuxd.engine.core.types import PrefillGraph, WaitingRequest

GRAPH_LENGTHS = (8, 16, 32, 64, 128, 256)
GRAPH_BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Captured graphs: new tokens per request by batch size (PLA-Serve 3.1)."""

PADDING_FREE_TOKENS = GRAPH_LENGTHS[-1]
"""Padding up to so many tokens in all is free: an H200 computes 256 tokens of an 8B model in 5.1 ms, where
launching 32 layers from the CPU takes 9.6 ms. 512 tokens take longer than that on a partition's SMs
(profile h200-llama-8b; on a mix of short and 8K prompts, 512 cost the long ones 10% of their throughput)."""

PADDING_RATIO = 1.05
"""Beyond that, compute binds, and padding is paid for in full."""

WINDOW_RANGE_S = (0.001, 0.020)
"""W_min and W_max: waiting for less than a launch takes costs nothing, waiting for more than two decode steps
is noticed."""
SLACK_THRESHOLD_S = 0.050
"""sigma: a request with no more slack than this is dispatched at once."""
SAFETY_MARGIN_S = 0.010
"""delta, taken off the SLA window: predictions are some 10% off."""
HEAD_OF_LINE_S = 0.100
"""T_max: nobody waits longer for company."""
DEADLINE_FREE_TOKENS = 4096
"""M_s: a deadline-free batch of so many tokens saturates compute."""
DEADLINE_FREE_WAIT_S = 1.0
"""T_max of the deadline-free mode."""
RATE_MEMORY_S = 0.25
"""Time constant of the arrival rate's exponential average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBatchingState:
    """W, D and the estimated arrival rate of short requests."""

    window_s: float = WINDOW_RANGE_S[1]
    depth: int = GRAPH_BATCHES[-1]
    """D starts at the deepest captured graph, as in line 1; the first dispatch corrects it."""
    rate_per_s: float = 0.0
    seen_s: float = -math.inf
    """Arrivals up to this instant are in the rate."""


def with_arrivals(
    state: AdaptiveBatchingState, shorts: Sequence[WaitingRequest], now_s: float
) -> AdaptiveBatchingState:
    """Count arrivals since the last look into the rate: sum of exp(-age / RATE_MEMORY_S) / RATE_MEMORY_S."""
    since_s = state.seen_s
    if now_s <= since_s:
        return state
    arrivals = sum(1 for request in shorts if request.arrival_s > since_s)
    kept = math.exp((since_s - now_s) / RATE_MEMORY_S) if math.isfinite(since_s) else 0.0
    rate = state.rate_per_s * kept + arrivals / RATE_MEMORY_S
    return replace(state, rate_per_s=rate, seen_s=now_s)


def window_s(state: AdaptiveBatchingState, *, depth: int, slack_s: float) -> float:
    """W(t) = clip(min(W_SLA, W_GR), W_min, W_max).

    W_SLA = max(0, least slack - delta), W_GR = max(0, D - depth) / arrival rate. `slack_s` is the least of
    deadline - now - service over the batch.
    """
    sla_s = max(0.0, slack_s - SAFETY_MARGIN_S)
    graph_s = max(0, state.depth - depth) / max(state.rate_per_s, 1e-9)
    low, high = WINDOW_RANGE_S
    return min(max(min(sla_s, graph_s), low), high)


def hold_s(
    state: AdaptiveBatchingState, batch: Sequence[WaitingRequest], *, now_s: float, service_s: float
) -> float:
    """How much longer a batch should wait for more requests; 0 to dispatch it now (algorithm 1, lines 3 to
    5).

    If the arrival rate lets it expect nobody within W_max, it does not wait: that would cost time and gain
    nothing.
    """
    waited_s = now_s - min(request.arrival_s for request in batch)
    slack_s = min(request.deadline_s for request in batch) - now_s - service_s
    if len(batch) >= state.depth or slack_s <= SLACK_THRESHOLD_S or waited_s > HEAD_OF_LINE_S:
        return 0.0
    if state.rate_per_s * WINDOW_RANGE_S[1] < 1.0:
        return 0.0
    left_s = min(state.window_s, HEAD_OF_LINE_S) - waited_s
    return max(0.0, min(left_s, window_s(state, depth=len(batch), slack_s=slack_s)))


def hold_deadline_free_s(batch: Sequence[WaitingRequest], *, now_s: float) -> float:
    """Token-max: 0 once the batch holds M_s tokens or a full graph, or its first has waited long enough."""
    tokens = sum(request.new_tokens for request in batch)
    if tokens >= DEADLINE_FREE_TOKENS or len(batch) >= GRAPH_BATCHES[-1]:
        return 0.0
    return max(0.0, min(request.arrival_s for request in batch) + DEADLINE_FREE_WAIT_S - now_s)


def dispatched(state: AdaptiveBatchingState, *, depth: int, fill_s: float) -> AdaptiveBatchingState:
    """Learn from a dispatch: W becomes the fill time if D was reached; D becomes the depth, at a captured
    size."""
    low, high = WINDOW_RANGE_S
    reached = depth >= state.depth
    return replace(
        state,
        window_s=min(max(fill_s, low), high) if reached else state.window_s,
        depth=max((b for b in GRAPH_BATCHES if b <= depth), default=1),
    )


def captured_length(new_tokens: int) -> int | None:
    """The shortest captured length that holds so many tokens; None if none does."""
    if new_tokens > GRAPH_LENGTHS[-1]:
        return None
    return max(GRAPH_LENGTHS[0], 1 << (new_tokens - 1).bit_length())


def nearest_graph(lengths: Sequence[int], budget_tokens: int) -> PrefillGraph | None:
    """The smallest captured graph that holds all `lengths`; None if none does or padding eats its gain."""
    if not lengths or len(lengths) > GRAPH_BATCHES[-1]:
        return None
    length = captured_length(max(lengths))
    if length is None:
        return None
    graph = PrefillGraph(length=length, batch=1 << (len(lengths) - 1).bit_length())
    limit = max(PADDING_FREE_TOKENS, PADDING_RATIO * sum(lengths))
    return graph if graph.tokens <= min(limit, budget_tokens) else None


def choose_batch(
    shorts: Sequence[WaitingRequest], budget_tokens: int, *, may_split: bool
) -> tuple[WaitingRequest, ...]:
    """The next batch, in the order given: bucket-first, so that a graph is reused with little padding.

    All who fit go together if one graph holds them, or if the rest would have to wait long (`may_split`
    false). Otherwise only those go that have the first one's captured length and a graph, and only if they
    are at least half of all: a graph takes half as long as the standard kernel, so with fewer the throughput
    would fall.
    """
    everyone = _fitting(shorts, budget_tokens)
    if not may_split or nearest_graph([r.new_tokens for r in everyone], budget_tokens) is not None:
        return everyone
    bucket = captured_length(everyone[0].new_tokens) if everyone else None
    group = tuple(r for r in everyone if captured_length(r.new_tokens) == bucket)
    if bucket is None or 2 * len(group) < len(everyone):
        return everyone
    if nearest_graph([r.new_tokens for r in group], budget_tokens) is not None:
        return group
    return everyone


def _fitting(shorts: Sequence[WaitingRequest], budget_tokens: int) -> tuple[WaitingRequest, ...]:
    """The first ones, up to the deepest graph and the budget; the first always."""
    chosen: list[WaitingRequest] = []
    for request in shorts[: GRAPH_BATCHES[-1]]:
        budget_tokens -= request.new_tokens
        if chosen and budget_tokens < 0:
            break
        chosen.append(request)
    return tuple(chosen)
