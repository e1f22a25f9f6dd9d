from __future__ import annotations

from pathlib import Path

import pytest

from pdmuxd.daemon.replay.shape import Shaping, TooLong, fit, shape
from pdmuxd.daemon.replay.trace import Trace, TraceFormat, TraceRequest
from pdmuxd.engine.core.errors import TraceError

PATH = Path("trace.jsonl")


def requests(*arrivals_s: float, input_tokens: int = 100, output_tokens: int = 10) -> list[TraceRequest]:
    return [
        TraceRequest(
            line=number,
            arrival_s=at,
            tenant="default",
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        for number, at in enumerate(arrivals_s, start=1)
    ]


def shaped(*arrivals_s: float, **options: object) -> Trace:
    return shape(PATH, TraceFormat.NATIVE, requests(*arrivals_s), Shaping(**options))  # type: ignore[arg-type]


def arrivals(trace: Trace) -> list[float]:
    return [request.arrival_s for request in trace.requests]


def test_time_starts_at_the_first_arrival_when_the_trace_starts_later() -> None:
    assert arrivals(shaped(5.0, 6.5)) == [0.0, 1.5]


def test_both_lines_are_named_when_arrivals_are_not_in_order() -> None:
    with pytest.raises(
        TraceError, match=r"trace\.jsonl:3: arrives 0\.5 s before the request of line 2; .*--sort"
    ):
        shaped(0.0, 2.0, 1.5)


def test_requests_are_put_in_order_when_sorted() -> None:
    trace = shaped(3.0, 1.0, 2.0, sort=True)
    assert arrivals(trace) == [0.0, 1.0, 2.0]
    assert [request.line for request in trace.requests] == [2, 3, 1]


def test_the_window_is_half_open_when_from_and_to_are_given() -> None:
    trace = shaped(10.0, 11.0, 12.0, 13.0, from_s=1.0, to_s=3.0)
    assert [request.line for request in trace.requests] == [2, 3]


def test_an_empty_window_is_an_error_when_nothing_arrives_in_it() -> None:
    with pytest.raises(TraceError, match=r"no request arrives from 50 s to its end .* arrives at 3 s"):
        shaped(0.0, 3.0, from_s=50.0)


def test_no_more_is_read_when_the_limit_is_reached() -> None:
    def endless() -> object:
        yield from requests(0.0, 1.0, 2.0)
        raise AssertionError("read too far")

    trace = shape(PATH, TraceFormat.NATIVE, endless(), Shaping(limit=2))  # type: ignore[arg-type]
    assert len(trace.requests) == 2


def test_arrivals_are_divided_when_a_rate_scale_is_given() -> None:
    trace = shaped(0.0, 1.0, 4.0, rate_scale=2.0)
    assert arrivals(trace) == [0.0, 0.5, 2.0]


def test_the_mean_rate_is_reached_when_a_rate_is_given() -> None:
    trace = shaped(0.0, 1.0, 4.0, 10.0, rate_rps=8.0)
    assert len(trace.requests) / trace.span_s == pytest.approx(8.0)
    assert trace.rate_scale == pytest.approx(20.0)


def test_a_rate_is_refused_when_all_arrive_at_once() -> None:
    with pytest.raises(TraceError, match="--rate needs requests that arrive at more than one instant"):
        shaped(1.0, 1.0, rate_rps=2.0)


def test_ticks_are_spread_in_order_when_detected() -> None:
    trace = shaped(*(3.0 * (i // 4) for i in range(40)))
    times = arrivals(trace)
    assert trace.tick_s == 3.0
    assert times == sorted(times)
    assert len(set(times)) == 40
    assert [request.line for request in trace.requests] == list(range(1, 41))


def test_the_same_seed_gives_the_same_arrivals_when_ticks_are_spread() -> None:
    ticks = [3.0 * (i // 4) for i in range(40)]
    assert arrivals(shaped(*ticks, seed=1)) == arrivals(shaped(*ticks, seed=1))
    assert arrivals(shaped(*ticks, seed=1)) != arrivals(shaped(*ticks, seed=2))


def test_ticks_are_left_alone_when_spreading_is_off() -> None:
    trace = shaped(*(3.0 * (i // 4) for i in range(40)), tick_s=0.0)
    assert trace.tick_s == 0.0
    assert len(set(arrivals(trace))) == 10


def test_number_and_first_are_named_when_requests_are_too_long() -> None:
    trace = Trace(
        path=PATH,
        format=TraceFormat.NATIVE,
        requests=(*requests(0.0), *requests(0.0, 1.0, input_tokens=995)),
    )
    with pytest.raises(
        TraceError, match=r"^trace\.jsonl:1: 2 of 3 requests are longer than the pool: the first has 995"
    ):
        fit(trace, 1000, TooLong.REFUSE, "the pool")


def test_only_the_long_are_left_out_when_dropped() -> None:
    trace = Trace(
        path=PATH, format=TraceFormat.NATIVE, requests=(*requests(0.0), *requests(0.0, input_tokens=995))
    )
    kept = fit(trace, 1000, TooLong.DROP, "the pool")
    assert ([r.input_tokens for r in kept.requests], kept.dropped_too_long) == ([100], 1)
    with pytest.raises(TraceError, match="all 2 requests are longer than the pool"):
        fit(trace, 10, TooLong.DROP, "the pool")


def test_the_head_of_the_prompt_is_kept_when_clipped() -> None:
    long = TraceRequest(
        line=1,
        arrival_s=0.0,
        tenant="a",
        input_tokens=1200,
        output_tokens=10,
        prefix_ids=(1, 2, 3),
        block_tokens=512,
    )
    trace = Trace(path=PATH, format=TraceFormat.MOONCAKE, requests=(long,), block_tokens=512)
    (clipped,) = fit(trace, 1000, TooLong.CLIP, "the pool").requests
    assert (clipped.input_tokens, clipped.output_tokens, clipped.prefix_ids) == (990, 10, (1, 2))
    (tiny,) = fit(trace, 8, TooLong.CLIP, "the pool").requests
    assert (tiny.input_tokens, tiny.output_tokens) == (1, 7)


def test_nothing_changes_when_all_fit() -> None:
    trace = Trace(path=PATH, format=TraceFormat.NATIVE, requests=tuple(requests(0.0)))
    assert fit(trace, 110, TooLong.REFUSE, "the pool") is trace
