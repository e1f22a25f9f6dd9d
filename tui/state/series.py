"""The last minutes of what changes ten times a second, kept by the second."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pdmuxd.tui.client.wire import HistoryOut, StatsEvent, Totals

KEPT_S = 1800
SCALES_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)
"""Seconds that one column of a chart may stand for."""


@dataclass(slots=True)
class Second:
    """Means of the shares and the last of everything else, within one second of the console's clock."""

    number: int
    samples: int = 0
    prefill_ratio: float = 0.0
    decode_ratio: float = 0.0
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    tbt_p50_ms: float | None = None
    tbt_p99_ms: float | None = None
    output_tokens_per_s: float | None = None
    waiting: float | None = None
    late_now: float | None = None
    in_flight: int | None = None
    totals: Totals | None = None
    """The engine's counters."""


class Series:
    """Seconds, oldest first; those in which nothing came are missing."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=KEPT_S)

    def add(self, stats: StatsEvent, now_s: float) -> None:
        number = int(now_s)
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(Second(number=number))
        second = self._seconds[-1]
        if stats.sm_busy_prefill_ratio is not None and stats.sm_busy_decode_ratio is not None:
            second.samples += 1
            second.prefill_ratio += (stats.sm_busy_prefill_ratio - second.prefill_ratio) / second.samples
            second.decode_ratio += (stats.sm_busy_decode_ratio - second.decode_ratio) / second.samples
        second.ttft_p50_ms, second.ttft_p99_ms = stats.ttft_ms.p50, stats.ttft_ms.p99
        second.tbt_p50_ms, second.tbt_p99_ms = stats.tbt_gap_ms.p50, stats.tbt_gap_ms.p99
        second.output_tokens_per_s = stats.output_tokens_per_s
        second.waiting = stats.waiting if stats.waiting_total is None else stats.waiting_total
        second.late_now = stats.late_now
        second.in_flight = stats.in_flight
        second.totals = stats.totals

    def fill(self, kept: HistoryOut, now: datetime, now_s: float) -> None:
        """Add seconds that the daemon has kept from before this console. Seconds that the console saw itself
        stay."""
        first = self._seconds[0].number if self._seconds else int(now_s) + 1
        columns, earlier = kept.columns, []
        for at, prefill_ms, decode_ms, total_ms, waiting, late, in_flight in zip(
            kept.at,
            columns.prefill_sm_ms,
            columns.decode_sm_ms,
            columns.total_sm_ms,
            columns.waiting,
            columns.late,
            columns.in_flight,
            strict=True,
        ):
            begin_s = int(now_s - (now - at).total_seconds())
            for number in range(begin_s, min(begin_s + kept.step_s, first)):
                second = Second(number=number, waiting=waiting, late_now=late, in_flight=in_flight)
                _set_busy(second, prefill_ms, decode_ms, total_ms)
                earlier.append(second)
        room = KEPT_S - len(self._seconds)
        self._seconds.extendleft(reversed(earlier[-room:] if room > 0 else ()))

    def replace(self, kept: HistoryOut, now: datetime, now_s: float) -> None:
        """Hold only what the daemon has kept: one sample for each of its steps."""
        self._seconds.clear()
        columns = kept.columns
        for at, prefill_ms, decode_ms, total_ms, waiting, late in zip(
            kept.at,
            columns.prefill_sm_ms,
            columns.decode_sm_ms,
            columns.total_sm_ms,
            columns.waiting,
            columns.late,
            strict=True,
        ):
            number = int(now_s - (now - at).total_seconds())
            second = Second(number=number, waiting=waiting, late_now=late)
            _set_busy(second, prefill_ms, decode_ms, total_ms)
            self._seconds.append(second)

    def shares(self, columns: int, scale_s: int, now_s: float) -> list[tuple[float, float] | None]:
        """Mean (prefill, decode) share per column of `scale_s` seconds; the last is the present one."""
        sums: list[list[float]] = [[0.0, 0.0, 0.0] for _ in range(columns)]
        for second, column in self._placed(columns, scale_s, now_s):
            if second.samples:
                found = sums[column]
                found[0] += second.prefill_ratio
                found[1] += second.decode_ratio
                found[2] += 1
        return [(p / n, d / n) if n else None for p, d, n in sums]

    def mean_shares(self, seconds: int, now_s: float) -> tuple[float, float] | None:
        """Mean (prefill, decode) share of so many seconds; None where nothing is known of them."""
        known = [one for one in self._since(now_s - seconds) if one.samples]
        if not known:
            return None
        return (
            sum(one.prefill_ratio for one in known) / len(known),
            sum(one.decode_ratio for one in known) / len(known),
        )

    def growth_per_s(self, seconds: int, now_s: float) -> float | None:
        """How fast the number of requests in flight grew over so many seconds; None before the second one."""
        known = [(one.number, one.in_flight) for one in self._since(now_s - seconds)]
        there = [(number, count) for number, count in known if count is not None]
        if len(there) < 2:
            return None
        (first, before), (last, after) = there[0], there[-1]
        return (after - before) / (last - first)

    def counted_per_s(self, name: str, seconds: int, now_s: float) -> float | None:
        """How fast one of the engine's counters grew; None before the second one, or over a restart."""
        since = self._since(now_s - seconds)
        known = [(one.number, getattr(one.totals, name)) for one in since if one.totals is not None]
        if len(known) < 2 or known[-1][1] < known[0][1]:
            return None
        (first, before), (last, after) = known[0], known[-1]
        grown: int = after - before
        return grown / (last - first)

    def _since(self, start_s: float) -> list[Second]:
        found = []
        for second in reversed(self._seconds):
            if second.number <= start_s:
                break
            found.append(second)
        return found[::-1]

    def values(
        self, of: Callable[[Second], float | None], columns: int, scale_s: int, now_s: float
    ) -> list[float | None]:
        """The worst of each column; None where nothing is known."""
        worst: list[float | None] = [None] * columns
        for second, column in self._placed(columns, scale_s, now_s):
            value, so_far = of(second), worst[column]
            if value is not None and (so_far is None or value > so_far):
                worst[column] = value
        return worst

    def _placed(self, columns: int, scale_s: int, now_s: float) -> list[tuple[Second, int]]:
        # Columns begin at multiples of the scale, so that a column keeps what it holds while it moves left.
        last = int(now_s) // scale_s
        placed = []
        for second in reversed(self._seconds):
            column = columns - 1 - (last - second.number // scale_s)
            if column < 0:
                break
            if column < columns:
                placed.append((second, column))
        return placed


def _set_busy(second: Second, prefill_ms: int, decode_ms: int, total_ms: int) -> None:
    """The shares of SM time that the daemon has kept; nothing if no engine ran."""
    if total_ms:
        second.samples = 1
        second.prefill_ratio, second.decode_ratio = prefill_ms / total_ms, decode_ms / total_ms


def scale_s(columns: int, wanted_s: int, *, least_s: int = 1) -> int:
    """The fewest seconds per column, of SCALES_S, with which the chart shows `wanted_s`."""
    scales = [scale for scale in SCALES_S if scale >= least_s]
    return next((scale for scale in scales if columns * scale >= wanted_s), scales[-1])
