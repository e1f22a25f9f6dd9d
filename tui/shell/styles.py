"""Palettes as the library wants them: a style per role, a theme per palette."""

from __future__ import annotations

from functools import cache

from rich.style import Style
from textual.theme import Theme

from pdmuxd.tui.show.palette import DARK, PALETTES, Palette
from pdmuxd.tui.show.roles import Role


@cache
def style_of(theme: str, role: Role) -> Style:
    """What a role looks like in a theme, on the theme's ground; other themes look as the dark one."""
    palette = PALETTES.get(theme, DARK)
    paint = palette.paints[role]
    return Style(
        color=paint.foreground if palette.letters else paint.foreground or palette.foreground,
        bgcolor=paint.background if palette.letters else paint.background or palette.background,
        bold=paint.bold or None,
        dim=paint.dim or None,
        underline=paint.underline or None,
        reverse=paint.reverse or None,
    )


def theme_of(palette: Palette) -> Theme:
    """The theme for the library's own widgets."""
    accent = palette.paints[Role.TITLE].foreground or palette.foreground
    return Theme(
        name=palette.name,
        primary=accent,
        secondary=accent,
        accent=accent,
        foreground=palette.foreground,
        background=palette.background,
        surface=palette.background,
        panel=palette.paints[Role.IDLE_FILL].background or palette.background,
        warning=palette.paints[Role.WARN].foreground or palette.foreground,
        error=palette.paints[Role.BAD].foreground or palette.foreground,
        success=palette.paints[Role.GOOD].foreground or palette.foreground,
        dark=palette.is_dark,
    )
