"""The ladder: what each mechanism of `auto` adds to the one before, beginning at a fixed chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdmuxd.daemon.compare.schema import CellDocument, CompareDocument

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
            yield f"+ {added} {held} ({_gain(below, cell)})"
        below = cell


def _gain(below: CellDocument, cell: CellDocument) -> str:
    """In percent, and whether the intervals of the two means tell them apart."""
    before, now = below.goodput_requests_per_s, cell.goodput_requests_per_s
    if before <= 0.0:
        return "nothing was held before" if now > 0.0 else "nothing is held"
    percent = f"{100.0 * (now / before - 1.0):+.0f}%"
    apart_rps = (below.goodput_half_width_95 or 0.0) + (cell.goodput_half_width_95 or 0.0)
    return percent if abs(now - before) > apart_rps else f"{percent}, not told apart"
