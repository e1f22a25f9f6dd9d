"""Colours that the colour-blind can tell apart and that stand out on white and on near-black.

Lines and bars keep a contrast of 3:1 against both; lines also differ by dash.
"""

from __future__ import annotations

import colorsys

from pdmuxd.engine.core.types import Reason
from pdmuxd.tui.show import colours

POLICIES = ("#009E73", "#C2409A", "#8A7A00", "#7B5CD6", "#1E96A8", "#B5533C")
"""None resembles the colours of prefill, decode or idle."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

PREFILL, DECODE = colours.PREFILL, colours.DECODE
IDLE = f"{colours.IDLE}4d"
"""At 30% opacity."""
TARGET = colours.TARGET

# Paul Tol's "muted" scheme, its indigo lighter for dark paper, then what else stays apart, then greys:
# a policy gives a handful of reasons, so the first nine do most of the work.
_REASONS = (
    "#88CCEE",
    "#5B4FC4",
    "#DDCC77",
    "#117733",
    "#CC6677",
    "#44AA99",
    "#882255",
    "#999933",
    "#AA4499",
    "#7F5539",
    "#4D7EA8",
    "#D55E00",
    "#F0E442",
    "#A0522D",
    "#006D6F",
    "#B0B0B0",
    "#707070",
    "#D8D8D8",
    "#F4A6B8",
    "#8FB98F",
    "#B388EB",
)


def policy_colour(index: int) -> str:
    """The colour of the policy in that column; colours repeat after six, dashes do not."""
    return POLICIES[index % len(POLICIES)]


def policy_dash(index: int) -> str:
    """The dash of the policy in that column."""
    return DASHES[(index + index // len(POLICIES)) % len(DASHES)]


def partition_colour(index: int, count: int) -> str:
    """The colour of one of `count` partitions: no two are alike, and neighbours differ in brightness, too."""
    lightness = (0.42, 0.58)[index % 2]
    red, green, blue = colorsys.hls_to_rgb(index / max(count, 1), lightness, 0.65)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def reason_colour(reason: str) -> str:
    """The same reason has the same colour in every report."""
    order = [str(known) for known in Reason]
    return _REASONS[order.index(reason) % len(_REASONS)] if reason in order else _REASONS[-1]
