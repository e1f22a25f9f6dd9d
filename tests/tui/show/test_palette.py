"""Whether people can tell the roles apart: contrast, and the common kinds of colour blindness."""

from __future__ import annotations

import itertools
import math

import pytest

from pdmuxd.tui.show.palette import DARK, LIGHT, MONO, PALETTES
from pdmuxd.tui.show.roles import Role

READABLE = 4.5
"""WCAG 2 level AA for text."""
APART = 25.0
"""Difference in CIE L*a*b*; 2.3 is just noticeable."""
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour):
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def luminance(rgb):
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(one, other):
    light, dark = sorted((luminance(linear(one)), luminance(linear(other))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    r, g, b = (min(1.0, max(0.0, value)) for value in rgb)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one, other, blindness):
    seen = [
        lab(
            [
                sum(weight * value for weight, value in zip(row, linear(colour), strict=True))
                for row in BLINDNESS[blindness]
            ]
        )
        for colour in (one, other)
    ]
    return math.dist(*seen)


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.RULE and "_on_" not in role])
def test_text_is_readable_when_it_has_any_role(palette, role):
    paint = palette.paints[role]
    front, back = paint.foreground or palette.foreground, paint.background or palette.background
    needed = 3.0 if role is Role.IDLE_FILL else READABLE
    assert contrast(front, back) >= needed


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_parts_of_the_bar_are_told_apart_when_colours_are_seen_differently(palette, blindness):
    fills = [
        palette.paints[role].background for role in (Role.PREFILL_FILL, Role.DECODE_FILL, Role.IDLE_FILL)
    ]
    for one, other in itertools.combinations(fills, 2):
        assert difference(one, other, blindness) >= APART


@pytest.mark.parametrize("palette", PALETTES.values(), ids=lambda palette: palette.name)
def test_every_role_has_a_paint_when_a_palette_is_used(palette):
    assert set(palette.paints) == set(Role)


def test_there_is_no_colour_when_there_must_be_none():
    assert all(paint.foreground is None and paint.background is None for paint in MONO.paints.values())
    assert MONO.letters
