"""Draw the parts of pdmuxd and what passes between them: `picture_parts.py docs/images/parts.svg`."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 960, 330
BOXES = {
    "clients": (20, 60, 170, 70, "#eeeeee", "clients|OpenAI's, Anthropic's API"),
    "gateway": (250, 60, 190, 70, "#dbe7f3", "gateway|keys, limits, fair places"),
    "engine": (
        510,
        30,
        200,
        130,
        "#dcefe2",
        "engine: SGLang|or the emulated GPU|with pdmuxd's loop and policy",
    ),
    "gpu": (770, 30, 170, 130, "#f6e6d3", "GPU|prefill SMs beside|decode SMs"),
    "control": (
        250,
        210,
        190,
        90,
        "#e9e0f1",
        "control plane|tenants, targets, profiles,|history, supervisor",
    ),
    "database": (20, 210, 170, 90, "#eeeeee", "SQLite or PostgreSQL"),
    "people": (510, 210, 430, 90, "#eeeeee", "operators|REST, command line, console, Prometheus"),
}
"""x, y, width, height, colour, lines."""
ARROWS = (
    (190, 95, 250, 95, "requests"),
    (440, 95, 510, 95, "tokens"),
    (710, 95, 770, 95, "launches"),
    (345, 130, 345, 210, "tenants"),
    (440, 225, 520, 160, ""),
    (250, 255, 190, 255, ""),
    (510, 270, 440, 270, "edits"),
)


def drawing() -> str:
    """The picture, as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="The parts of pdmuxd">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for x, y, width, height, colour, text in BOXES.values():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{colour}" stroke="#666"/>'
        )
        lines = text.split("|")
        first = y + height / 2 - 9 * (len(lines) - 1) + 4
        for number, line in enumerate(lines):
            weight = "bold" if number == 0 else "normal"
            parts.append(
                f'<text x="{x + width / 2}" y="{first + 18 * number}" text-anchor="middle" '
                f'font-weight="{weight}">{escape(line)}</text>'
            )
    for x1, y1, x2, y2, text in ARROWS:
        parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#444" stroke-width="1.5" '
            'marker-start="url(#a)" marker-end="url(#a)"/>'
        )
        beside = 30 if x1 == x2 else 0
        parts.append(
            f'<text x="{(x1 + x2) / 2 + beside}" y="{(y1 + y2) / 2 - 7}" text-anchor="middle" font-size="11" '
            f'fill="#444">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawing())
