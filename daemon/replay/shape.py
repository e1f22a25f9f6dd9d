"""Shapes the requests of a file into those of a replay: order, window, ticks, rate, length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

import numpy as np

from pdmuxd.daemon.replay.ticks import detect_tick_s, spread_ticks
from pdmuxd.daemon.replay.trace import Trace, TraceRequest, line_error
from pdmuxd.engine.core.errors import TraceError


class TooLong(StrEnum):
    """What to do with requests that the engine cannot hold."""

    REFUSE = "refuse"
    DROP = "drop"
    CLIP = "clip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """What the user asked for. Seconds count from the trace's first arrival, before any scaling."""

    sort: bool = False
    from_s: float = 0.0
    to_s: float | None = None
    limit: int | None = None
    tick_s: float | None = None
    """None detects a coarse tick; 0 leaves arrivals alone."""
    rate_scale: float = 1.0
    rate_rps: float | None = None
    """Scale so that this many requests arrive a second on average; wins over `rate_scale`."""
    seed: int = 0


def shape(path: Path, trace_format: str, requests: Iterable[TraceRequest], shaping: Shaping) -> Trace:
    """Choose and re-time requests; reads no further than the window and the limit need.

    Raises: TraceError for unsorted arrivals (unless `sort`), an empty window, or a rate that cannot
    be reached because all requests arrive at once.
    """
    ordered = sorted(requests, key=_arrival) if shaping.sort else _in_order(path, requests)
    chosen = tuple(islice(_window(path, ordered, shaping), shaping.limit))
    arrival_s = np.array([request.arrival_s for request in chosen])
    arrival_s -= arrival_s[0]
    tick_s = detect_tick_s(arrival_s) if shaping.tick_s is None else shaping.tick_s
    if tick_s > 0:
        arrival_s = spread_ticks(arrival_s, tick_s, shaping.seed)
        arrival_s -= arrival_s[0]
    scale = _scale(path, arrival_s, shaping)
    return Trace(
        path=path,
        format=trace_format,
        requests=tuple(
            replace(request, arrival_s=float(at))
            for request, at in zip(chosen, arrival_s / scale, strict=True)
        ),
        block_tokens=max(request.block_tokens for request in chosen),
        tick_s=tick_s,
        rate_scale=scale,
    )


def fit(trace: Trace, max_tokens: int, too_long: TooLong, limit_name: str) -> Trace:
    """Deal with requests whose prompt and output together exceed `max_tokens`.

    CLIP keeps the head of the prompt, and shortens the output only if it does not fit by itself.
    Raises: TraceError with their number and the first of them (REFUSE), or if none is left (DROP).
    """
    over = [request for request in trace.requests if _total(request) > max_tokens]
    if not over:
        return trace
    if too_long is TooLong.REFUSE:
        raise _refusal(trace, over, max_tokens, limit_name)
    if too_long is TooLong.CLIP:
        clipped = tuple(_clip(request, max_tokens) for request in trace.requests)
        return replace(trace, requests=clipped, clipped=len(over))
    kept = tuple(request for request in trace.requests if _total(request) <= max_tokens)
    if not kept:
        raise TraceError(f"{trace.path}: all {len(over):,} requests are longer than {limit_name}")
    return replace(trace, requests=kept, dropped_too_long=len(over))


def _refusal(trace: Trace, over: list[TraceRequest], max_tokens: int, limit_name: str) -> TraceError:
    first = over[0]
    return line_error(
        trace.path,
        first.line,
        f"{len(over):,} of {len(trace.requests):,} requests are longer than {limit_name}: the first has "
        f"{first.input_tokens:,} input and {first.output_tokens:,} output tokens, allowed are "
        f"{max_tokens:,} together; --drop-too-long leaves them out, --clip shortens them",
    )


def _total(request: TraceRequest) -> int:
    return request.input_tokens + request.output_tokens


def _clip(request: TraceRequest, max_tokens: int) -> TraceRequest:
    if _total(request) <= max_tokens:
        return request
    output = min(request.output_tokens, max_tokens - 1)
    tokens = min(request.input_tokens, max_tokens - output)
    blocks = -(-tokens // request.block_tokens) if request.block_tokens else 0
    return replace(
        request,
        input_tokens=tokens,
        output_tokens=output,
        prefix_ids=request.prefix_ids[:blocks],
        answer_ids=(),  # what is left out was in front of the answer, or in it
    )


def _arrival(request: TraceRequest) -> float:
    return request.arrival_s


def _in_order(path: Path, requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    last = None
    for request in requests:
        if last is not None and request.arrival_s < last.arrival_s:
            raise line_error(
                path,
                request.line,
                f"arrives {last.arrival_s - request.arrival_s:g} s before the request of line {last.line}; "
                "allowed are arrivals in order, or --sort",
            )
        last = request
        yield request


def _window(path: Path, ordered: Iterable[TraceRequest], shaping: Shaping) -> Iterator[TraceRequest]:
    start_s: float | None = None
    since_s, empty = 0.0, True
    for request in ordered:
        start_s = request.arrival_s if start_s is None else start_s
        since_s = request.arrival_s - start_s
        if shaping.to_s is not None and since_s >= shaping.to_s:
            break
        if since_s >= shaping.from_s:
            empty = False
            yield request
    if empty:
        until = "its end" if shaping.to_s is None else f"{shaping.to_s:g} s"
        raise TraceError(
            f"{path}: no request arrives from {shaping.from_s:g} s to {until} after the first; "
            f"the last one looked at arrives at {since_s:g} s"
        )


def _scale(path: Path, arrival_s: np.ndarray[tuple[int], np.dtype[np.float64]], shaping: Shaping) -> float:
    if shaping.rate_rps is None:
        return shaping.rate_scale
    span_s = float(arrival_s[-1])
    if span_s <= 0:
        raise TraceError(f"{path}: --rate needs requests that arrive at more than one instant")
    return shaping.rate_rps * span_s / len(arrival_s)
