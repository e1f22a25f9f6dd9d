from __future__ import annotations

import json
import re

import pytest
from comparisons import document, plan

from pdmuxd.daemon.compare.report.page import render
from pdmuxd.daemon.compare.stages import compare

pytestmark = pytest.mark.slow

FIGURES = re.compile(r'<script type="application/json" id="figures">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def page() -> str:
    of = plan(seeds=(0,), name="<b>trace</b>.jsonl")
    found = compare(of, ["muxwise", "chunked:256"], [0.02, 0.05], detail=True)
    slos = [of.slo(common.tbt_s) for common in found.common]
    return render(document(of, found, "pdmuxd compare t --seed 7"), found.common, slos)


def test_curves_come_first_and_every_target_has_its_figures_when_rendered(page: str) -> None:
    figures = json.loads(FIGURES.search(page)[1])  # type: ignore[index]
    assert len(figures) == page.count('class="plot" id="figure-') == 1 + 2 * 5
    curves = [trace for trace in figures[0]["data"] if trace.get("name")]
    assert {trace["name"] for trace in curves} == {"muxwise", "chunked:256"}
    assert page.count("Why: reasons of the decisions (TBT 20 ms, ") >= 1


def test_nothing_is_fetched_when_the_report_is_opened(page: str) -> None:
    assert "default-src 'none'" in page
    own = re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert re.findall(r"<(?:script|img|iframe|link)[^>]*\b(?:src|href)=", own) == []


def test_names_stay_text_when_they_look_like_html(page: str) -> None:
    assert "<b>trace</b>" not in page
    assert "&lt;b&gt;trace&lt;/b&gt;.jsonl" in page or "&lt;/b&gt;.jsonl" in page


def test_the_command_is_shown_when_rendered(page: str) -> None:
    assert "<pre>pdmuxd compare t --seed 7</pre>" in page


def test_the_slowest_and_the_longest_prompts_are_told_when_rendered(page: str) -> None:
    assert "TTFT p99.9" in page
    assert "in time by length" in page
    assert len(re.findall(r"<td>(?:\d+\.\d ){4}%</td>", page)) == 4
