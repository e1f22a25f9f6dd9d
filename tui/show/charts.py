"""Charts in text: a strip of stacked shares over time, and sparklines against a target."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.tui.show.lines import Line, Run
from pdmuxd.tui.show.roles import Role

EIGHTHS = " ▁▂▃▄▅▆▇█"
MISSING = "╌"

Shares = tuple[float, float]
"""(prefill, decode): shares of all SMs' time; what is missing to 1 is idle."""


def strip_chart(columns: Sequence[Shares | None], height: int, *, letters: bool) -> list[Line]:
    """One cell wide per instant, oldest first, prefill below, decode above it, idle on top.

    None is an instant of which nothing is known.
    """
    return [
        _merge([_cell(shares, level, height, letters=letters) for shares in columns])
        for level in reversed(range(height))
    ]


def sparkline(values: Sequence[float | None], *, top: float, target: float | None = None) -> Line:
    """A cell per value, `top` fills it; values above the target are marked by their role."""
    runs: list[Run] = []
    for value in values:
        if value is None:
            runs.append((MISSING, Role.DIM))
            continue
        level = 0 if top <= 0 else min(8, max(1, round(8 * value / top)))
        over = target is not None and value > target
        runs.append((EIGHTHS[level], Role.BAD if over else Role.GOOD if target is not None else Role.PLAIN))
    return _merge(runs)


def meter(share: float | None, width: int, role: Role = Role.PLAIN) -> Line:
    """A share of `width` cells, to an eighth of a cell."""
    share = min(1.0, max(0.0, share or 0.0))
    eighths = round(share * width * 8)
    full, part = divmod(eighths, 8)
    text = "█" * full + ("▏▎▍▌▋▊▉"[part - 1] if part else "")
    return _merge([(text, role), ("░" * (width - len(text)), Role.DIM)])


def _cell(shares: Shares | None, level: int, height: int, *, letters: bool) -> Run:
    if shares is None:
        return " ", Role.PLAIN
    prefill = round(min(1.0, max(0.0, shares[0])) * height * 8)
    busy = min(height * 8, prefill + round(min(1.0, max(0.0, shares[1])) * height * 8))
    low, high = level * 8, level * 8 + 8
    prefill_part = min(8, max(0, prefill - low))
    busy_part = min(8, max(0, busy - low))
    if letters:
        middle = low + 4
        return ("P" if prefill >= middle else "D" if busy >= middle else "·"), (
            Role.PREFILL_FILL if prefill >= middle else Role.DECODE_FILL if busy >= middle else Role.IDLE_FILL
        )
    if prefill_part == 8:
        return " ", Role.PREFILL_FILL
    if prefill_part:
        above = Role.PREFILL_ON_DECODE if busy >= high - 4 and busy > prefill else Role.PREFILL_ON_IDLE
        return EIGHTHS[prefill_part], above
    if busy_part == 8:
        return " ", Role.DECODE_FILL
    return (EIGHTHS[busy_part], Role.DECODE_ON_IDLE) if busy_part else (" ", Role.IDLE_FILL)


def _merge(runs: Sequence[Run]) -> Line:
    """Neighbours of the same role become one run, so that a chart costs few escape sequences."""
    merged: list[Run] = []
    for text, role in runs:
        if not text:
            continue
        if merged and merged[-1][1] is role:
            merged[-1] = (merged[-1][0] + text, role)
        else:
            merged.append((text, role))
    return tuple(merged)
