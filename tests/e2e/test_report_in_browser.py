"""A replay's and a comparison's report in a headless Chromium: tables are sorted as they are clicked."""

from __future__ import annotations

import chromium
import comparisons
import pytest
import replays

from pdmuxd.daemon.compare.report.page import render as compare_page
from pdmuxd.daemon.compare.stages import compare
from pdmuxd.daemon.replay.report.page import render as replay_page

pytestmark = pytest.mark.slow
POLICIES = "[...document.querySelectorAll('thead th')].slice(1, -1).map(head => head.textContent)"
NAMES = "[...document.querySelectorAll('tbody th[scope=row]')].map(head => head.textContent)"
VALUES = """(() => {
  const row = [...document.querySelectorAll("tbody tr")].find(row => row.cells[0].textContent === "%s");
  return [...row.cells].slice(1, -1).map(cell => parseFloat(cell.textContent.replace(/,/g, "")));
})()"""
CLICK = "[...document.querySelectorAll('th')].find(head => head.textContent === '%s').click()"
READY = "document.querySelectorAll('[tabindex]').length > 0"


async def test_policies_are_put_in_order_when_a_metric_of_a_replay_is_clicked(tmp_path):
    chromium.path()
    of = replays.plan(60)
    ran = replays.replayed(of, "upstream", "chunked:512", "muxwise")
    file = tmp_path / "replay.html"
    file.write_text(replay_page(replays.document(of, ran, "pdmuxd replay t"), ran, of.slo))
    async with chromium.chromium(tmp_path / "browser") as page:
        await page.open(file.as_uri())
        await page.until(READY)
        made, before = await page.run(POLICIES), await page.run(VALUES % "steps")
        assert made == ["upstream", "chunked:512", "muxwise"]
        await page.run(CLICK % "steps")
        assert await page.run(VALUES % "steps") == sorted(before)
        by_policy = dict(zip(made, before, strict=True))
        assert [by_policy[name] for name in await page.run(POLICIES)] == sorted(before)
        await page.run(CLICK % "steps")
        assert await page.run(VALUES % "steps") == sorted(before, reverse=True)
        await page.run(CLICK % "steps")
        assert await page.run(POLICIES) == made
        assert page.errors == []


async def test_policies_are_put_in_order_when_a_heading_of_a_comparison_is_clicked(tmp_path):
    chromium.path()
    of = comparisons.plan(seeds=(0,))
    found = compare(of, ["muxwise", "chunked:256"], [0.05], detail=True)
    slos = [of.slo(common.tbt_s) for common in found.common]
    file = tmp_path / "compare.html"
    file.write_text(compare_page(comparisons.document(of, found, "pdmuxd compare t"), found.common, slos))
    async with chromium.chromium(tmp_path / "browser") as page:
        await page.open(file.as_uri())
        await page.until(READY)
        assert await page.run(NAMES) == ["muxwise", "chunked:256"]
        await page.run(CLICK % "policy")
        assert await page.run(NAMES) == ["chunked:256", "muxwise"]
        assert page.errors == []
