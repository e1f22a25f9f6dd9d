"""The ladder: what each mechanism of `auto` adds to the one before, beginning at a fixed chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.daemon.compare.schema import CellDocument, CompareDocument
from pdmuxd.daemon.compare.statistics import estimate

RUNGS = (
    ("in order of arrival", "chunked:{tokens}"),
    ("in slack order", "slack/chunked:{tokens}"),
    ("a budget from the target", "auto:nopreempt+nolookahead+nosplit"),
    ("preemption", "auto:nolookahead+nosplit"),
    ("splits", "auto:nolookahead"),
    ("look-ahead", "auto"),
)
"""What is added, and the specification with it and all before."""


def rungs(chunk_tokens: int) -> tuple[str, ...]:
    """The policies of the ladder that begins at this chunk, from the lowest rung."""
    return tuple(spec.format(tokens=chunk_tokens) for _, spec in RUNGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one rung adds to another."""

    ratio: float
    """Of their goodputs, minus 1."""
    is_told_apart: bool | None
    """Whether the 95% interval excludes no gain at all; None with a single seed."""


def gain(before_per_s: Sequence[float], now_per_s: Sequence[float]) -> Gain | None:
    """The goodputs of the same seeds, compared seed by seed: the geometric mean of their ratios.

    A seed is the same requests under both, so that each ratio is free of what its requests happen to be.
    None if nothing was held before under some seed.
    """
    if not all(rate > 0.0 for rate in before_per_s):
        return None
    ratios = [now / before for before, now in zip(before_per_s, now_per_s, strict=True)]
    if not all(ratios):
        return Gain(ratio=math.fsum(ratios) / len(ratios) - 1.0, is_told_apart=not any(ratios) or None)
    logs = estimate([math.log(ratio) for ratio in ratios])
    half = logs.half_width_95
    return Gain(ratio=math.expm1(logs.mean), is_told_apart=None if half is None else abs(logs.mean) > half)


def gain_text(before_per_s: Sequence[float], now_per_s: Sequence[float]) -> str:
    """The gain in percent, and whether the seeds tell the two apart."""
    found = gain(before_per_s, now_per_s)
    if found is None:
        return "nothing was held before" if any(now_per_s) else "nothing is held"
    percent = f"{100.0 * found.ratio:+.0f}%"
    return percent if found.is_told_apart else f"{percent}, not told apart"


def ladder_notes(document: CompareDocument) -> Iterator[str]:
    """A sentence for each target and chunk whose whole ladder was compared."""
    for tbt_ms in document.targets.tbt_ms:
        cells = {cell.policy: cell for cell in document.cells if cell.tbt_ms == tbt_ms}
        for name in cells:
            head, _, tokens = name.partition(":")
            if head == "chunked" and all(spec in cells for spec in rungs(int(tokens))):
                yield f"TBT {tbt_ms:g} ms, {name}: {'; '.join(_steps(cells, int(tokens)))}."


def _steps(cells: Mapping[str, CellDocument], chunk_tokens: int) -> Iterator[str]:
    below: CellDocument | None = None
    for (added, _), spec in zip(RUNGS, rungs(chunk_tokens), strict=True):
        cell = cells[spec]
        held = f"{cell.goodput_requests_per_s:.3g}/s"
        if below is None:
            yield f"{added} {held}"
        else:
            yield f"+ {added} {held} ({gain_text(_per_seed(below), _per_seed(cell))})"
        below = cell


def _per_seed(cell: CellDocument) -> list[float]:
    return [seed.goodput_requests_per_s for seed in cell.seeds]
