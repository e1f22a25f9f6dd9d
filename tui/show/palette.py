"""How each role looks: dark, light, and without colour.

Prefill is orange and decode blue, which stay apart for all common kinds of colour blindness (after Okabe and
Ito's palette); good and bad differ in brightness too. Without colour, bars are made of letters and the rest
is weight and reversal, so nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdmuxd.tui.show import colours
from pdmuxd.tui.show.roles import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Colours as `#rrggbb`; None is what lies behind."""

    foreground: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    underline: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """A paint for every role."""

    name: str
    background: str
    foreground: str
    is_dark: bool
    letters: bool
    """Whether bars are drawn with letters, since there is no colour."""
    paints: Mapping[Role, Paint]


def _coloured(
    name: str,
    *,
    ground: str,
    text: str,
    dim: str,
    rule: str,
    accent: str,
    prefill: str,
    decode: str,
    idle: str,
    prefill_fill: str,
    decode_fill: str,
    idle_fill: str,
    good: str,
    warn: str,
    bad: str,
    heats: tuple[str, str, str, str, str],
    heat_text: tuple[str, str, str, str, str],
    is_dark: bool,
) -> Palette:
    paints = {
        Role.PLAIN: Paint(foreground=text),
        Role.DIM: Paint(foreground=dim),
        Role.STRONG: Paint(foreground=text, bold=True),
        Role.TITLE: Paint(foreground=accent, bold=True),
        Role.RULE: Paint(foreground=rule),
        Role.KEY: Paint(foreground=accent, bold=True),
        Role.TAB: Paint(foreground=ground, background=accent, bold=True),
        Role.CURSOR: Paint(foreground=ground, background=text),
        Role.CURSOR_BAD: Paint(foreground=ground, background=bad, bold=True),
        Role.CURSOR_WARN: Paint(foreground=ground, background=warn, bold=True),
        Role.PREFILL: Paint(foreground=prefill),
        Role.DECODE: Paint(foreground=decode),
        Role.IDLE: Paint(foreground=idle),
        Role.PREFILL_FILL: Paint(foreground="#000000", background=prefill_fill, bold=True),
        Role.DECODE_FILL: Paint(foreground="#ffffff", background=decode_fill, bold=True),
        Role.IDLE_FILL: Paint(foreground=dim, background=idle_fill),
        Role.PREFILL_ON_DECODE: Paint(foreground=prefill_fill, background=decode_fill),
        Role.PREFILL_ON_IDLE: Paint(foreground=prefill_fill, background=idle_fill),
        Role.DECODE_ON_IDLE: Paint(foreground=decode_fill, background=idle_fill),
        Role.GOOD: Paint(foreground=good),
        Role.WARN: Paint(foreground=warn, bold=True),
        Role.BAD: Paint(foreground=bad, bold=True),
        Role.ALERT: Paint(foreground="#ffffff", background="#a3200d", bold=True),
        Role.NOTICE: Paint(foreground="#000000", background="#f0c350", bold=True),
    }
    for role, fill, over in zip(
        (Role.HEAT_1, Role.HEAT_2, Role.HEAT_3, Role.HEAT_4, Role.HEAT_5), heats, heat_text, strict=True
    ):
        paints[role] = Paint(foreground=over, background=fill)
    return Palette(
        name=name, background=ground, foreground=text, is_dark=is_dark, letters=False, paints=paints
    )


DARK = _coloured(
    "pdmuxd-dark",
    ground="#12161c",
    text="#d6dbe1",
    dim="#8b949e",
    rule="#4a545f",
    accent="#8fd3f4",
    prefill="#f0a830",
    decode="#6cb4f0",
    idle="#8b949e",
    prefill_fill=colours.PREFILL,
    decode_fill=colours.DECODE,
    idle_fill="#2a323b",
    good=colours.GOOD_ON_DARK,
    warn="#f0d060",
    bad=colours.BAD_ON_DARK,
    heats=("#20303f", "#3d4f6b", "#8a5a80", "#d07850", "#f5c242"),
    heat_text=("#ffffff", "#ffffff", "#ffffff", "#000000", "#000000"),
    is_dark=True,
)
LIGHT = _coloured(
    "pdmuxd-light",
    ground="#fbfbf8",
    text="#22272e",
    dim="#5c6670",
    rule="#b6bcc2",
    accent="#00577d",
    prefill="#8a5200",
    decode="#00579c",
    idle="#5c6670",
    prefill_fill=colours.PREFILL,
    decode_fill=colours.DECODE,
    idle_fill="#dde1e4",
    good=colours.GOOD,
    warn="#7a5800",
    bad=colours.BAD,
    heats=("#e8eef4", "#c3d3e6", "#c9a3c0", "#c4643e", "#6b2a16"),
    heat_text=("#000000", "#000000", "#000000", "#000000", "#ffffff"),
    is_dark=False,
)
_MONO_PAINTS = {
    Role.PLAIN: Paint(),
    Role.DIM: Paint(dim=True),
    Role.STRONG: Paint(bold=True),
    Role.TITLE: Paint(bold=True),
    Role.RULE: Paint(dim=True),
    Role.KEY: Paint(bold=True),
    Role.TAB: Paint(reverse=True, bold=True),
    Role.CURSOR: Paint(reverse=True),
    Role.CURSOR_BAD: Paint(reverse=True, bold=True, underline=True),
    Role.CURSOR_WARN: Paint(reverse=True, bold=True),
    Role.PREFILL: Paint(),
    Role.DECODE: Paint(),
    Role.IDLE: Paint(dim=True),
    Role.PREFILL_FILL: Paint(bold=True),
    Role.DECODE_FILL: Paint(reverse=True),
    Role.IDLE_FILL: Paint(dim=True),
    Role.PREFILL_ON_DECODE: Paint(),
    Role.PREFILL_ON_IDLE: Paint(),
    Role.DECODE_ON_IDLE: Paint(),
    Role.GOOD: Paint(),
    Role.WARN: Paint(bold=True),
    Role.BAD: Paint(bold=True, underline=True),
    Role.ALERT: Paint(reverse=True, bold=True),
    Role.NOTICE: Paint(reverse=True),
    Role.HEAT_1: Paint(dim=True),
    Role.HEAT_2: Paint(),
    Role.HEAT_3: Paint(bold=True),
    Role.HEAT_4: Paint(underline=True, bold=True),
    Role.HEAT_5: Paint(reverse=True, bold=True),
}
MONO = Palette(
    name="pdmuxd-mono",
    background="#000000",
    foreground="#ffffff",
    is_dark=True,
    letters=True,
    paints=_MONO_PAINTS,
)
PALETTES = {palette.name: palette for palette in (DARK, LIGHT, MONO)}
