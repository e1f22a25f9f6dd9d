"""TTFT and TBT against their targets, now and over the last minutes."""

from __future__ import annotations

import statistics

from pdmuxd.tui.client.wire import Percentiles
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import sparkline
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, Run, fit
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.series import Second, scale_s
from pdmuxd.tui.state.view import View

TEXT_WIDTH = 46
WANTED_S = 120
RECENT_REQUESTS = 200
MANY_LATE = 0.01
"""A share of late first tokens above this is marked."""


def latency(view: View, width: int, height: int) -> list[Line]:
    """A title and a line each: percentiles, target, verdict, sparkline of the 99th percentile.

    Both of the requests that ended in the last minute, TBT of all gaps between their tokens.
    """
    stats = view.state.stats
    columns = max(0, width - TEXT_WIDTH)
    scale = scale_s(max(1, columns), WANTED_S)
    head = heading(view, "Latency, ms", width, f"ended in 1 min; graph: p99, {scale} s per column")
    if stats is None:
        return [head]
    tbt_target = stats.strictest_tbt.tbt_ms if stats.strictest_tbt else None
    rows = (
        ("TTFT", stats.ttft_ms, in_time(view), None, _ttft_p99),
        ("TBT", stats.tbt_gap_ms, _within(stats.tbt_gap_ms.p99, tbt_target), tbt_target, _tbt_p99),
    )
    shown = [head]
    for name, found, judged, target, of in rows:
        history = view.state.series.values(of, columns, scale, view.now_s)
        top = max([value for value in history if value is not None] + [target or 0.0])
        text = fit(_figures(name, found, judged), TEXT_WIDTH)
        shown.append(text + sparkline(history, top=top, target=target))
    return shown[:height]


def in_time(view: View) -> Line:
    """How many of the last requests had their first token in time, and their median target.

    Each prompt has a target of its own: a percentile of all says nothing of any.
    """
    newest = list(view.state.requests)[-RECENT_REQUESTS:]
    pairs = [(one.ttft_ms, one.ttft_target_ms) for one in newest if one.ttft_ms is not None]
    judged = [(ttft_ms, target_ms) for ttft_ms, target_ms in pairs if target_ms is not None]
    if not judged:
        return (("  ", Role.DIM), ("target ", Role.DIM), (formats.NONE, Role.PLAIN))
    late = sum(ttft_ms > target_ms for ttft_ms, target_ms in judged) / len(judged)
    usual_ms = statistics.median(target_ms for _, target_ms in judged)
    mark, role = ("! ", Role.BAD) if late > MANY_LATE else ("+ ", Role.GOOD)
    return (
        (mark, role),
        (f"{formats.percent(1.0 - late, 1)} in ", role),
        (f"~{formats.ms(usual_ms)}", Role.PLAIN),
    )


def verdict(p99: float | None, target: float | None) -> Run:
    """A letter and a colour for the same: + within the target, ! above it."""
    if p99 is None or target is None:
        return "  ", Role.DIM
    return ("! ", Role.BAD) if p99 > target else ("+ ", Role.GOOD)


def _within(p99: float | None, target: float | None) -> Line:
    sign, role = verdict(p99, target)
    return ((sign, role), ("target ", Role.DIM), (formats.ms(target), Role.PLAIN))


def _figures(name: str, found: Percentiles, judged: Line) -> Line:
    return (
        (f"{name:<5}", Role.STRONG),
        ("p50 ", Role.DIM),
        (f"{formats.ms(found.p50):>5}", Role.PLAIN),
        ("  p99 ", Role.DIM),
        (f"{formats.ms(found.p99):>5} ", Role.PLAIN),
        *judged,
    )


def _ttft_p99(second: Second) -> float | None:
    return second.ttft_p99_ms


def _tbt_p99(second: Second) -> float | None:
    return second.tbt_p99_ms
