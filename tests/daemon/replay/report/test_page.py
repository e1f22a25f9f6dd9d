from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from replays import document, plan, replayed

from pdmuxd.daemon.replay.report.page import render
from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import log_axis
from pdmuxd.engine.core.types import Reason

FIGURES = re.compile(r'<script type="application/json" id="figures">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def page() -> str:
    of = plan(60)
    replays = replayed(of, "muxwise", "chunked:512", "upstream", "static:96,36")
    return render(document(of, replays, "pdmuxd replay trace.jsonl --seed 7"), replays, of.slo)


def own(page: str) -> str:
    """The page without plotly's own source."""
    return re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)


def test_nothing_is_fetched_when_the_report_is_opened(page: str) -> None:
    assert re.findall(r"<(?:script|img|iframe|link)[^>]*\b(?:src|href)=", own(page)) == []
    assert "@import" not in own(page)
    assert "default-src 'none'" in page
    assert page.count("plotly.js v") >= 1


def test_the_report_is_small_when_it_has_four_policies(page: str) -> None:
    assert len(page.encode()) < 6_000_000


def test_the_header_says_what_was_replayed_when_rendered(page: str) -> None:
    for text in ("trace.jsonl", "seed 0", "h200-llama-8b", "derived: ", "TBT 50 ms", "pdmuxd 1.2.3"):
        assert text in page
    assert "<pre>pdmuxd replay trace.jsonl --seed 7</pre>" in page


def test_every_figure_has_a_place_and_its_data_when_rendered(page: str) -> None:
    figures = json.loads(FIGURES.search(page)[1])  # type: ignore[index]
    assert len(figures) == page.count('class="plot" id="figure-') == 7
    assert all(figure["data"] for figure in figures)
    assert {trace["name"] for trace in figures[0]["data"]} == {
        "muxwise",
        "chunked:512",
        "upstream",
        "static:96,36",
    }


def test_names_stay_text_when_they_look_like_html() -> None:
    hostile = "</script><script>alert(1)</script>"
    of = plan(12, tenants=("a<b>", hostile[:60]), name=f"{hostile}.jsonl".replace("/", "_"))
    replays = replayed(of, "muxwise")
    page = render(document(of, replays, f"pdmuxd replay '{hostile}'"), replays, of.slo)
    assert "<script>alert" not in page
    assert len(json.loads(FIGURES.search(page)[1])) == 8  # type: ignore[index]


def test_the_report_renders_when_no_request_got_a_token() -> None:
    of = plan(4, kv_capacity_tokens=10)
    replays = replayed(of, "muxwise")
    assert replays[0].metrics.failed == 4
    page = render(document(of, replays), replays, of.slo)
    assert "never" in page


def test_the_report_renders_when_there_is_one_request() -> None:
    of = plan(1)
    of = replace(of, trace=replace(of.trace, requests=(replace(of.trace.requests[0], output_tokens=1),)))
    replays = replayed(of, "upstream")
    assert "figure-6" in render(document(of, replays), replays, of.slo)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("paper", ["#ffffff", "#14171b"])
@pytest.mark.parametrize("colour", [*colours.POLICIES, colours.TARGET])
def test_lines_stand_out_when_the_theme_is_light_or_dark(colour: str, paper: str) -> None:
    light, dark = sorted((luminance(colour), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.0


def test_reasons_keep_their_colours_apart_when_all_appear() -> None:
    known = [colours.reason_colour(str(reason)) for reason in Reason]
    assert len(set(known)) == len(known)
    assert colours.reason_colour("a reason of a later version") in colours._REASONS


def test_ticks_are_plain_numbers_when_an_axis_is_logarithmic() -> None:
    axis = log_axis(np.array([3.0, 40.0, 0.0]), "TBT, ms")
    assert axis["ticktext"] == ["5", "10", "20"]
    assert log_axis([1.0, 1e6], "x")["ticktext"] == [
        "1",
        "10",
        "100",
        "1,000",
        "10,000",
        "100,000",
        "1,000,000",
    ]
    assert log_axis([], "x")["ticktext"] == ["1", "2", "5", "10"]
