"""Charts in text: a strip of stacked shares over time, columns against a target, meters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


AXIS_WIDTH = 7
"""Cells of the labels at the left of a chart, with their rule."""
AXIS_ROWS = 2
NO_EVENTS: Mapping[int, Run] = {}


def chart(
    values: Sequence[float | None],
    height: int,
    *,
    show: Callable[[float], str],
    target: float | None = None,
    over_is_bad: bool = True,
    least_top: float = 0.0,
    bottom: float = 0.0,
    bad: Sequence[bool] | None = None,
) -> list[Line]:
    """Columns over a labelled axis, oldest first, with a line where the target is.

    `show` writes a value of the axis. Columns beyond the target have the role for bad: those above it, or
    those below where more is better; `bad` says it of each column where there is no target.
    """
    known = [value for value in values if value is not None]
    top = max([*known, least_top, *([target * 1.05] if target is not None else [])], default=0.0)
    span = top - bottom if top > bottom else 1.0
    target_row = None
    if target is not None:
        target_row = min(height - 1, max(0, int((target - bottom) / span * height)))
    roles = [
        _column_role(value, target, over_is_bad, bad[at] if bad else False) for at, value in enumerate(values)
    ]
    lines = []
    for level in reversed(range(height)):
        is_target = level == target_row
        empty: Run = ("─", Role.RULE) if is_target else (" ", Role.PLAIN)
        label = ""
        if is_target and target is not None:
            label = show(target)
        elif level == height - 1:
            label = show(top)
        elif level == 0:
            label = show(bottom)
        runs: list[Run] = [
            (f"{label:>{AXIS_WIDTH - 2}} ", Role.STRONG if is_target else Role.DIM),
            ("┤", Role.RULE),
        ]
        for value, role in zip(values, roles, strict=True):
            if value is None:
                runs.append((MISSING, Role.DIM) if level == 0 else empty)
                continue
            filled = round((value - bottom) / span * height * 8) - level * 8
            if filled > 0:
                runs.append((EIGHTHS[min(8, filled)], role))
            else:
                runs.append(("▁", role) if level == 0 else empty)
        lines.append(_merge(runs))
    return lines


def _column_role(value: float | None, target: float | None, over_is_bad: bool, is_bad: bool) -> Role:
    if value is None or target is None:
        return Role.BAD if is_bad else Role.PLAIN
    return Role.BAD if (value > target) == over_is_bad and value != target else Role.GOOD


def axis(columns: int, span: str, events: Mapping[int, Run] = NO_EVENTS) -> list[Line]:
    """The axis below a chart of so many columns: what happened when, and where its time begins and ends."""
    rule = _merge([events.get(column, ("─", Role.RULE)) for column in range(columns)])
    left, right = f"{span} ago", "now"
    labels = left + " " * max(1, columns - len(left) - len(right)) + right
    return [
        ((f"{'':>{AXIS_WIDTH - 1}}└", Role.RULE), *rule),
        ((" " * AXIS_WIDTH + labels, Role.DIM),),
    ]


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
