"""Requests, decisions, alarms and the audit on pages."""

from __future__ import annotations

import re

import pytest
from browsers import Browser
from stores import AdminCalls
from telemetry_feeds import loaded_telemetry, request_record

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.partitions import shade_of
from pdmuxd.controlplane.web.records import changes


@pytest.fixture
async def browser(control_plane: ControlPlane) -> Browser:
    for name in ("chat", "search"):
        control_plane.create_tenant(name)
    known = loaded_telemetry(control_plane.snapshot())
    known.on_begin("late", tenant="chat", path="/")
    known.on_request(request_record(request_id="late", ttft_s=9.0, queue_s=8.9))
    known.on_answered("late", status=200)
    made = Browser(AdminCalls(control_plane, telemetry=known))
    await made.log_in()
    return made


async def test_a_request_that_missed_is_found_and_its_life_is_told(browser: Browser) -> None:
    ended = (await browser.get("/ui/requests")).text
    assert {"late", "chat30", "search30"} <= set(re.findall('href="/ui/requests/([^"]+)"', ended))
    missed = (await browser.get("/ui/requests?which=missed&tenant=chat")).text
    assert re.findall('href="/ui/requests/([^"]+)"', missed) == ["late"]
    assert "TTFT: waits in the queue" in missed
    life = (await browser.get("/ui/requests/late")).text
    assert "It missed its TTFT." in life
    assert "waited <b>8900 ms</b>" in life
    assert (await browser.get("/ui/requests/nobody")).status_code == 404


async def test_decisions_are_told_in_words_and_by_reason(browser: Browser) -> None:
    words = "the fewest decode SMs whose worst case meets the strictest TBT target"
    page = (await browser.get("/ui/decisions")).text
    assert f'<a href="/ui/decisions?reason=best_fit">{words}</a>' in page
    assert "There is none." in (await browser.get("/ui/decisions?reason=fused_fits")).text
    assert (await browser.get("/ui/decisions?reason=whim")).status_code == 422


async def test_the_audit_says_who_changed_what_and_why(browser: Browser, control_plane: ControlPlane) -> None:
    control_plane.update_tenant("chat", weight=2.0)
    page = (await browser.get("/ui/audit?tenant=chat")).text
    assert "tenant.update" in page
    assert "weight: 1.0 → 2.0" in page
    assert "search" not in re.sub('role="search"|class="search"|type="search"', "", page)
    assert "Nothing was changed." in (await browser.get("/ui/audit?who=nobody")).text
    assert "No alarm was raised." in (await browser.get("/ui/alarms")).text


def test_changes_name_what_differs() -> None:
    assert changes({"a": 1, "b": "x"}, {"a": 1, "b": "y", "c": [1]}) == [("b", "x", "y"), ("c", "", "[1]")]
    assert changes(None, None) == []


async def test_the_gpu_page_says_what_rest_says(browser: Browser) -> None:
    assert "llama-8b on H200, 132 SMs" in (await browser.get("/ui/gpu")).text
    page = (await browser.get("/ui/partitions")).text
    assert '<th scope="row">96 | 36</th>' in page
    # 40 steps on 36 SMs beside a prefill of 2,048 new tokens, each with a guard of 1.2.
    assert re.search(r'<th scope="row">36</th><td class="n shade-1" title="40 steps; [^"]*">1\.20</td>', page)


@pytest.mark.parametrize(("ratio", "shade"), [(0.9, 0), (1.0, 0), (1.2, 1), (1.5, 2), (2.0, 4), (9.0, 4)])
def test_a_shade_grows_with_the_slowdown(ratio: float, shade: int) -> None:
    assert shade_of(ratio) == shade
