"""Prefill, decode and idle have one colour in the console, in reports and on the dashboard."""

from __future__ import annotations

import math
import re

import pytest

from pdmuxd.daemon.monitoring.dashboard import dashboard
from pdmuxd.daemon.report import colours as of_reports
from pdmuxd.tui.show import colours
from pdmuxd.tui.show.palette import DARK, LIGHT
from pdmuxd.tui.show.roles import Role

PANELS = {panel["title"]: panel for panel in dashboard()["panels"] if panel["type"] == "timeseries"}
SERIES = [
    ("Split of the SMs", "h200:8081 prefill", colours.PREFILL),
    ("Split of the SMs", "h200:8081 decode", colours.DECODE),
    ("SM time in use", "h200:8081 prefill", colours.PREFILL),
    ("SM time in use", "h200:8081 decode", colours.DECODE),
    ("SM time in use", "h200:8081 idle", colours.IDLE),
    ("Requests in the engine", "h200:8081 in prefill", colours.PREFILL),
    ("Requests in the engine", "h200:8081 decoding", colours.DECODE),
    ("Gaps between tokens", "chat target", colours.TARGET),
    ("First tokens in time", "chat promised", colours.TARGET),
    # A tenant may have any name.
    ("Output tokens", "decode", None),
    ("Gaps between tokens", "decode p99", None),
]
APART = 50.0
"""In RGB, of 441."""


def drawn(panel, legend: str) -> str | None:
    """The colour that Grafana gives a series of that name."""
    for override in panel["fieldConfig"]["overrides"]:
        (rule,) = override["properties"]
        if re.search(override["matcher"]["options"].strip("/"), legend):
            return rule["value"]["fixedColor"]
    return None


@pytest.mark.parametrize(("title", "legend", "colour"), SERIES)
def test_a_series_has_the_colour_of_what_it_shows_when_it_has_one(title, legend, colour):
    assert drawn(PANELS[title], legend) == colour


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
def test_the_console_has_the_colours_of_reports_when_it_fills_cells(palette):
    assert palette.paints[Role.PREFILL_FILL].background == of_reports.PREFILL == colours.PREFILL
    assert palette.paints[Role.DECODE_FILL].background == of_reports.DECODE == colours.DECODE
    assert of_reports.IDLE.startswith(colours.IDLE)
    assert of_reports.TARGET == colours.TARGET
    good, bad = palette.paints[Role.GOOD].foreground, palette.paints[Role.BAD].foreground
    if palette.is_dark:
        assert (good, bad) == (colours.GOOD_ON_DARK, colours.BAD_ON_DARK)
    else:
        assert (good, bad) == (colours.GOOD, colours.BAD)


@pytest.mark.parametrize("policy", of_reports.POLICIES)
def test_no_policy_looks_like_prefill_or_decode(policy):
    for phase in (colours.PREFILL, colours.DECODE, colours.IDLE):
        pairs = [(int(policy[at : at + 2], 16), int(phase[at : at + 2], 16)) for at in (1, 3, 5)]
        assert math.dist(*zip(*pairs, strict=True)) > APART
