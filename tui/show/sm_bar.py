"""The GPU as a bar of its SMs: prefill grows from the left, decode from the right, idle lies between.

In a split each side fills its own partition and `│` marks the boundary; a fused batch has all SMs, so both
share one space. Busy ratios are shares of all SMs' time.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.tui.show.lines import Line, Run
from pdmuxd.tui.show.roles import Role

BOUNDARY = "│"
LETTERS = {Role.PREFILL_FILL: "P", Role.DECODE_FILL: "D", Role.IDLE_FILL: "·"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmUse:
    """The SMs of the partition in force, and how busy each kind of work keeps them."""

    total_sms: int
    prefill_sms: int
    decode_sms: int
    prefill_ratio: float
    decode_ratio: float
    is_fused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """How many cells of a bar each part takes; they add up to its width."""

    prefill: int
    prefill_idle: int
    boundary: int
    decode_idle: int
    decode: int


def cells(use: SmUse, width: int) -> Cells:
    """Share out `width` cells. Work that is there at all gets a cell where there is room for one."""
    is_split = not use.is_fused and use.prefill_sms > 0 and use.decode_sms > 0 and width >= 3
    if not is_split:
        prefill, decode = _busy(use.prefill_ratio, width), _busy(use.decode_ratio, width)
        over = max(0, prefill + decode - width)
        if prefill >= decode:
            prefill -= over
        else:
            decode -= over
        return Cells(
            prefill=prefill, prefill_idle=width - prefill - decode, boundary=0, decode_idle=0, decode=decode
        )
    room = width - 1
    held = use.prefill_sms + use.decode_sms
    left = min(room - 1, max(1, round(room * use.prefill_sms / held)))
    right = room - left
    prefill = min(left, _busy(use.prefill_ratio * use.total_sms / use.prefill_sms, left))
    decode = min(right, _busy(use.decode_ratio * use.total_sms / use.decode_sms, right))
    return Cells(
        prefill=prefill, prefill_idle=left - prefill, boundary=1, decode_idle=right - decode, decode=decode
    )


def bar(use: SmUse, width: int, *, letters: bool, is_named: bool = True) -> Line:
    """The bar as a line, each part with its name where that fits and is wanted."""
    parts = cells(use, width)
    runs: list[Run] = [
        _part(parts.prefill, "prefill" * is_named, Role.PREFILL_FILL, letters=letters),
        _part(parts.prefill_idle, "", Role.IDLE_FILL, letters=letters),
        (BOUNDARY * parts.boundary, Role.STRONG),
        _part(parts.decode_idle, "", Role.IDLE_FILL, letters=letters),
        _part(parts.decode, "decode" * is_named, Role.DECODE_FILL, letters=letters),
    ]
    return tuple(run for run in runs if run[0])


def _busy(share: float, width: int) -> int:
    share = min(1.0, max(0.0, share))
    return max(1, round(share * width)) if share > 0.004 and width else 0


def _part(width: int, name: str, role: Role, *, letters: bool) -> Run:
    if letters:
        return LETTERS[role] * width, role
    return (name if width >= len(name) + 2 else name[:1].upper() if width >= 3 else "").center(width), role
