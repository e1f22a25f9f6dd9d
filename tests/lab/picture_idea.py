"""Draw the idea of pdmuxd, one GPU as a strip of SMs over time: `picture_idea.py docs/images/idea.svg`.

This is a drawing, not a measurement: the SM counts are an H200's (132), the times are round.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

SMS = 132
WIDTH, HEIGHT = 960, 452
LEFT, TOP, ACROSS, DOWN = 70, 92, 860, 230
END_MS = 860
"""A pixel is a millisecond."""

PREFILL, SHORT, DECODE, FUSED = "#4c78a8", "#b45f06", "#2f7a4d", "#76549a"


@dataclass(frozen=True, slots=True)
class Piece:
    """Work on some SMs for some time; `text` is written into it."""

    from_ms: int
    to_ms: int
    from_sm: int
    to_sm: int
    colour: str
    text: str = ""


PIECES = (
    Piece(0, 110, 0, SMS, DECODE, "decode alone|all 132 SMs"),
    Piece(110, 310, 0, 112, PREFILL, "a long prompt,|prefilled layer by layer|on 112 SMs"),
    Piece(110, 540, 112, SMS, DECODE, "decode on 20 SMs"),
    Piece(310, 430, 0, 112, SHORT, "short prompts|go first"),
    Piece(430, 540, 0, 112, PREFILL, "the long one|goes on"),
    Piece(540, 710, 0, 80, PREFILL, "the long one|on 80 SMs"),
    Piece(540, 710, 80, SMS, DECODE, "decode on 52 SMs|is faster"),
    Piece(710, 860, 0, SMS, FUSED, "a few prompt tokens|in each decode step,|on all SMs"),
)
EVENTS = (
    (110, "a long prompt arrives"),
    (310, "short prompts arrive, with less time left"),
    (540, "TBT target: 50 to 20 ms"),
    (710, "only a few wait"),
)


def svg() -> str:
    """Put the picture together."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="t d" font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">',
        '<title id="t">One GPU as a strip of SMs over time</title>',
        '<desc id="d">Prefill and decode run side by side on disjoint SMs. A long prompt is set aside for '
        "short ones; a tighter target between tokens moves the border.</desc>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(
            LEFT,
            26,
            "One GPU, 132 SMs: prefill and decode at the same time, split by what tenants were promised",
            15,
        ),
    ]
    parts += [_piece(piece) for piece in PIECES]
    parts += [_event(index, at_ms, text) for index, (at_ms, text) in enumerate(EVENTS)]
    parts += [_ticks(), _legend(), "</svg>"]
    return "\n".join(parts) + "\n"


def _y(sm: float) -> float:
    return TOP + DOWN * sm / SMS


def _piece(piece: Piece) -> str:
    x, y = LEFT + piece.from_ms, _y(piece.from_sm)
    wide, high = piece.to_ms - piece.from_ms, _y(piece.to_sm) - y
    place = f'x="{x}" y="{y:.1f}" width="{wide}" height="{high:.1f}"'
    box = f'<rect {place} fill="{piece.colour}" stroke="#ffffff"/>'
    lines = piece.text.split("|") if piece.text else []
    first = y + high / 2 + 5 - 9 * (len(lines) - 1)
    words = [
        _text(x + wide / 2, first + 18 * n, line, fill="#ffffff", anchor="middle")
        for n, line in enumerate(lines)
    ]
    return "\n".join([box, *words])


def _event(index: int, at_ms: int, text: str) -> str:
    x, y = LEFT + at_ms, TOP - 14 - 20 * (index % 2)
    line = (
        f'<line x1="{x}" y1="{y - 10}" x2="{x}" y2="{TOP + DOWN}" stroke="#222222" stroke-dasharray="4 3"/>'
    )
    return line + "\n" + _text(x + 5, y, text)


def _ticks() -> str:
    below = TOP + DOWN
    marks = [_text(LEFT - 8, _y(sm) + 5, f"{sm}", anchor="end") for sm in (0, SMS)]
    marks.append(_text(LEFT - 8, _y(SMS / 2) + 5, "SMs", anchor="end"))
    marks.append(_text(LEFT, below + 20, "0"))
    marks.append(_text(LEFT + ACROSS, below + 20, f"{END_MS} ms", anchor="end"))
    return "\n".join(marks)


def _legend() -> str:
    entries = (
        (PREFILL, "prefill: the first token of a long prompt is due later (TTFT)"),
        (SHORT, "prefill of prompts that are due sooner"),
        (DECODE, "decode: as few SMs as keep the time between tokens (TBT) of the strictest tenant"),
        (FUSED, "prefill and decode in one fused step, where that serves more requests in time"),
    )
    rows = []
    for row, (colour, text) in enumerate(entries):
        y = TOP + DOWN + 50 + 22 * row
        rows.append(f'<rect x="{LEFT}" y="{y - 11}" width="14" height="14" fill="{colour}"/>')
        rows.append(_text(LEFT + 22, y + 1, text))
    return "\n".join(rows)


def _text(
    x: float, y: float, text: str, size: int = 13, *, fill: str = "#222222", anchor: str = "start"
) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: picture_idea.py FILE")
    Path(sys.argv[1]).write_text(svg(), encoding="utf-8")
