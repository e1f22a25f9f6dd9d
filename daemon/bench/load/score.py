"""Turns what a client saw into the figures of a run.

A request is good when its first token came in time and the p99 of its token gaps meets the TBT target. One
that was cut at the end of the run, or left by its client, before its first token was due is left out; one
that was cut while it waited for a token has that wait among its gaps, if it is the longest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pdmuxd.daemon.bench.load.client import Seen
from pdmuxd.engine.core.quantiles import nearest_rank

BIN_S = 0.0005
_FIELDS_BEFORE = 9
"""Of a row before 2026-11-25, which does not tell the p99 of the other gaps."""
SHORT_TOKENS, LONG_TOKENS = 1_000, 4_000


def record(seen: Sequence[Seen]) -> dict[str, Any]:
    """Everything that is kept of a run: one row per request, and a histogram of all gaps."""
    histogram: dict[int, int] = {}
    for one in seen:
        for gap_s in _gaps_s(one):
            histogram[int(gap_s / BIN_S)] = histogram.get(int(gap_s / BIN_S), 0) + 1
    begin_s = min(one.request.at_s for one in seen)
    first_s = [one.request.at_s + one.ttft_s for one in seen if one.ttft_s is not None]
    return {
        "rows": [_row(one) for one in seen],
        "gaps": sorted(histogram.items()),
        "errors": sorted({one.error for one in seen if one.error})[:5],
        "late_ms": round(1e3 * max(one.sent_late_s for one in seen), 1),
        "busy_s": round(max(first_s) - begin_s, 3) if first_s else None,
        "duration_s": max(one.request.at_s for one in seen),
    }


def _gaps_s(one: Seen) -> list[float]:
    """Gaps between tokens; a request that was cut has one since its last token, if that is longer than
    any."""
    if one.outcome != "cut" or one.ttft_s is None:
        return one.gaps_s
    open_s = one.waited_s - one.ttft_s - sum(one.gaps_s)
    return [*one.gaps_s, open_s] if open_s > max(one.gaps_s, default=0.0) else one.gaps_s


def _row(one: Seen) -> list[Any]:
    request, gaps_s = one.request, _gaps_s(one)
    return [
        request.input_tokens,
        request.new_tokens,
        one.cached_tokens,
        one.tokens,
        None if one.ttft_s is None else round(1e3 * one.ttft_s, 2),
        round(1e3 * request.ttft_target_s, 1),
        round(1e3 * quantile(gaps_s, 0.99), 2) if gaps_s else None,
        round(1e3 * one.waited_s, 1),
        one.outcome,
        None if not gaps_s else round(1e3 * quantile(sorted(gaps_s)[:-1], 0.99), 2) if gaps_s[1:] else 0.0,
    ]


def summary(run: Mapping[str, Any], *, tbt_ms: float) -> dict[str, Any]:
    """The figures of a recorded run against a TBT target."""
    verdicts = [(_is_good(row, tbt_ms), row[1]) for row in run["rows"]]
    ttfts = [row[7] if row[4] is None else row[4] for row in run["rows"] if row[8] != "error"]
    prefilled = sum(row[0] for row in run["rows"] if row[4] is not None)
    known = [good for good, _ in verdicts if good is not None]
    tells = all(len(row) > _FIELDS_BEFORE for row in run["rows"])
    forgiven = [_is_forgiven(row, tbt_ms) for row in run["rows"]] if tells else []
    return {
        "good_ratio": _share(known),
        "forgiven_ratio": _share([good for good in forgiven if good is not None]),
        "in_time_ratio": _share(
            [good for row in run["rows"] if (good := _is_good(row, math.inf)) is not None]
        ),
        "good_short": _share([g for g, size in verdicts if g is not None and size <= SHORT_TOKENS]),
        "good_long": _share([g for g, size in verdicts if g is not None and size > LONG_TOKENS]),
        "goodput_rps": sum(known) / run["duration_s"] if run["duration_s"] else None,
        "within_ratio": _within(run["gaps"], tbt_ms),
        "ttft_p50_ms": quantile(ttfts, 0.5),
        "ttft_p99_ms": quantile(ttfts, 0.99),
        "tbt_p50_ms": _histogram_quantile(run["gaps"], 0.5),
        "tbt_p99_ms": _histogram_quantile(run["gaps"], 0.99),
        "input_tps": prefilled / run["busy_s"] if run["busy_s"] else 0.0,
        "requests": len(run["rows"]),
        "unknown": sum(good is None for good, _ in verdicts),
        "errors": sum(row[8] == "error" for row in run["rows"]),
    }


def line(key: Sequence[Any], tbt_ms: float, figures: dict[str, Any]) -> str:
    """One run on one line."""
    return f"{' '.join(map(str, key[:4]))} @{tbt_ms:g}ms | {_cells(figures)}"


def _cells(figures: dict[str, Any]) -> str:
    return (
        f"good {percent(figures['good_ratio'])} "
        f"(short prompts {percent(figures['good_short'])}, long {percent(figures['good_long'])}, "
        f"{percent(figures['forgiven_ratio'])} with one late gap forgiven), "
        f"gaps in time {percent(figures['within_ratio'])}, "
        f"TTFT p50 {figures['ttft_p50_ms']:.0f} p99 {figures['ttft_p99_ms']:.0f} ms, "
        f"TBT p50 {figures['tbt_p50_ms']:.1f} p99 {figures['tbt_p99_ms']:.1f} ms, "
        f"{figures['input_tps']:.0f} prompt tokens/s, {figures['requests']} requests "
        f"({figures['unknown']} unknown, {figures['errors']} errors)"
    )


def percent(ratio: float | None) -> str:
    """A ratio as a person reads it."""
    return "-" if ratio is None else f"{100 * ratio:.1f}%"


def _is_good(row: Sequence[Any], tbt_ms: float) -> bool | None:
    ttft_ms, target_ms, gap_ms, waited_ms, outcome = row[4], row[5], row[6], row[7], row[8]
    if outcome == "error":
        return False
    if (waited_ms if ttft_ms is None else ttft_ms) > target_ms:
        return False
    if gap_ms is None and ttft_ms is not None and outcome == "cut":
        gap_ms = waited_ms - ttft_ms  # as rows of before 2026-11-22 have it: it got no second token
    if gap_ms is not None and gap_ms > tbt_ms:
        return False
    # Cut or left in time so far: without a first token nobody knows, with one it is what was seen of it.
    return None if outcome != "done" and ttft_ms is None else True


def _is_forgiven(row: Sequence[Any], tbt_ms: float) -> bool | None:
    """Whether it is good, or would be without its longest gap."""
    good = _is_good(row, tbt_ms)
    return good if good is not False else _is_good([*row[:6], row[9], *row[7:]], tbt_ms)


def quantile(values: Sequence[float], q: float) -> float:
    """The nearest rank; NaN of nothing."""
    found = nearest_rank(values, q)
    return math.nan if found is None else found


def _share(known: Sequence[bool]) -> float | None:
    return sum(known) / len(known) if known else None


def _within(gaps: Sequence[Sequence[int]], tbt_ms: float) -> float | None:
    total = sum(count for _, count in gaps)
    # A bin that the target cuts counts as late.
    met = sum(count for number, count in gaps if (number + 1) * BIN_S <= tbt_ms / 1e3 + 1e-9)
    return met / total if total else None


def _histogram_quantile(gaps: Sequence[Sequence[int]], q: float) -> float:
    left = q * sum(count for _, count in gaps)
    for number, count in gaps:
        left -= count
        if left <= 0:
            return (number + 0.5) * BIN_S * 1e3
    return math.nan
