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

TEXT_WIDTH = 44
WANTED_S = 120
RECENT_REQUESTS = 50


def latency(view: View, width: int, height: int) -> list[Line]:
    """A title and a line each: percentiles, target, verdict, sparkline of the 99th percentile."""
    stats = view.state.stats
    columns = max(0, width - TEXT_WIDTH)
    scale = scale_s(max(1, columns), WANTED_S)
    head = heading(view, "Latency, ms", width, f"p99, {scale} s per column, worst of each")
    if stats is None:
        return [head]
    tbt_target = stats.strictest_tbt.tbt_ms if stats.strictest_tbt else None
    rows = (
        ("TTFT", stats.ttft_ms, usual_ttft_target_ms(view), "~", _ttft_p99),
        ("TBT", stats.tbt_gap_ms, tbt_target, " ", _tbt_p99),
    )
    shown = [head]
    for name, found, target, mark, of in rows:
        history = view.state.series.values(of, columns, scale, view.now_s)
        top = max([value for value in history if value is not None] + [target or 0.0])
        text = fit(_figures(name, found, target, mark), TEXT_WIDTH)
        shown.append(text + sparkline(history, top=top, target=target))
    return shown[:height]


def usual_ttft_target_ms(view: View) -> float | None:
    """The median target of the last requests: a TTFT target depends on the prompt, so there is not one."""
    newest = list(view.state.requests)[-RECENT_REQUESTS:]
    targets = [one.ttft_target_ms for one in newest if one.ttft_target_ms is not None]
    return statistics.median(targets) if targets else None


def verdict(p99: float | None, target: float | None) -> Run:
    """A letter and a colour for the same: + within the target, ! above it."""
    if p99 is None or target is None:
        return "  ", Role.DIM
    return ("! ", Role.BAD) if p99 > target else ("+ ", Role.GOOD)


def _figures(name: str, found: Percentiles, target: float | None, mark: str) -> Line:
    sign, role = verdict(found.p99, target)
    return (
        (f"{name:<5}", Role.STRONG),
        ("p50 ", Role.DIM),
        (f"{formats.ms(found.p50):>5}", Role.PLAIN),
        ("  p99 ", Role.DIM),
        (f"{formats.ms(found.p99):>5} ", role if sign.strip() else Role.PLAIN),
        (sign, role),
        ("target ", Role.DIM),
        (f"{mark}{formats.ms(target):<6}", Role.PLAIN),
    )


def _ttft_p99(second: Second) -> float | None:
    return second.ttft_p99_ms


def _tbt_p99(second: Second) -> float | None:
    return second.tbt_p99_ms
