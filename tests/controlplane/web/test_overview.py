"""The overview: what it says is what REST says, whatever is asked for is bounded and kept to itself."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from browsers import Browser
from stores import AdminCalls
from telemetry_feeds import HandClock, heartbeat, loaded_telemetry, request_record, telemetry

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.live import Live
from pdmuxd.controlplane.web.rendering import ASSETS, asset, ms_with_unit
from pdmuxd.tui.show import colours, formats

TEMPLATES = Path(__file__).parents[3] / "controlplane" / "web" / "templates"


@pytest.fixture
def busy(control_plane: ControlPlane) -> Telemetry:
    control_plane.create_tenant("chat")
    control_plane.create_tenant("search")
    made = loaded_telemetry(control_plane.snapshot())
    made.on_message(heartbeat(prefill_sms=96, decode_sms=36, partition_id=1, sm_busy_prefill_ratio=0.5))
    return made


@pytest.fixture
async def browser(control_plane: ControlPlane, busy: Telemetry) -> Browser:
    made = Browser(AdminCalls(control_plane, telemetry=busy))
    await made.log_in()
    return made


def shown(page: str, name: str) -> str:
    found = re.search(f'data-live="{name}">([^<]*)<', page)
    assert found is not None, name
    return html.unescape(found[1])


async def test_page_and_rest_agree_when_they_are_asked_at_one_instant(
    browser: Browser, busy: Telemetry, control_plane: ControlPlane
) -> None:
    page = (await browser.get("/ui/overview")).text
    call = AdminCalls(control_plane, telemetry=busy)
    told = {one["tenant"]: one for one in (await call("GET", "/api/v1/attainment")).json()["tenants"]}
    assert set(told) == {"chat", "search"}
    for name, one in told.items():
        row = re.search(f'<tr data-tenant="{name}" data-verdict="(\\w+)">(.*?)</tr>', page, re.DOTALL)
        assert row is not None
        assert row[1] == one["verdict"]
        assert f'data-key="late">{one["late_now"]}<' in row[2]
        assert f'data-key="waiting">{one["waiting"]}<' in row[2]
    assert shown(page, "waiting") == str(sum(one["waiting"] for one in told.values()))
    assert shown(page, "late") == str(sum(one["late_now"] for one in told.values()))


async def test_what_was_in_time_is_told_by_steps_and_with_a_late_gap_forgiven_too(
    browser: Browser, busy: Telemetry
) -> None:
    page = (await browser.get("/ui/overview")).text
    stats = Live(busy).now().stats
    rates = (stats.goodput_per_s, stats.good_by_steps_per_s, stats.good_forgiven_per_s)
    names = ("in_time", "in_time_by_steps", "in_time_forgiven")
    assert tuple(shown(page, name) for name in names) == tuple(map(formats.rate, rates))
    assert None not in rates


async def test_the_tenants_of_the_overview_are_sent_as_csv(browser: Browser) -> None:
    page = (await browser.get("/ui/overview")).text
    assert 'class="csv" href="?csv=tenants"' in page
    sent = list(csv.DictReader(io.StringIO((await browser.get("/ui/overview?csv=tenants")).text)))
    assert [one["tenant"] for one in sent] == re.findall('<tr data-tenant="([^"]+)"', page)
    assert {one["verdict"] for one in sent} == set(re.findall('data-verdict="([^"]+)"', page))
    past = (await browser.get("/ui/overview?at=2026-01-31T12:00:00Z&csv=tenants")).text
    assert past.splitlines()[0] == "tenant,met_ratio,requests,refused"


async def test_the_stream_tells_what_the_page_was_loaded_with(browser: Browser, busy: Telemetry) -> None:
    page = (await browser.get("/ui/overview")).text
    told = json.loads(Live(busy).now().message.removeprefix(b"data: "))
    assert {name: shown(page, name) for name in told["values"]} == told["values"]
    assert list(told["tenants"]) == re.findall('data-tenant="([^"]+)"', page)


async def test_the_stream_ends_when_the_daemon_does(busy: Telemetry) -> None:
    live = Live(busy)
    stream = live.stream()
    assert (await anext(stream)).startswith(b"retry:")
    assert (await anext(stream)).startswith(b"data: {")
    assert live.streams == 1
    busy.events.close()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert live.streams == 0


async def test_a_tenant_that_misses_is_named_with_since_when_and_why() -> None:
    clock = HandClock()
    made = telemetry(clock, chat=0.04, quiet=0.04)
    made.on_begin("r1", tenant="chat", path="/")
    made.on_request(request_record(ttft_s=9.0, queue_s=8.9))
    made.on_answered("r1", status=200)
    made.status = lambda: loaded_telemetry(made.directory, seconds=0).status()
    now = Live(made).now()
    assert (now.verdict.state, now.verdict.text) == ("bad", "chat misses its TTFT.")
    assert "0.0% of the last 5 minutes in time, 99.0% promised" in now.verdict.lines[0]
    assert now.verdict.lines[1] == "Likely cause: waits in the queue."


async def test_an_engine_that_is_down_comes_before_all_else() -> None:
    now = Live(telemetry(HandClock())).now()
    assert now.verdict.state == "bad"
    assert now.verdict.text.startswith("The engine is down")
    assert now.strip is None


@pytest.mark.parametrize("window", ["30m", "2h", "24h", "7d", "30d"])
async def test_a_moment_is_shown_when_the_address_names_one(browser: Browser, window: str) -> None:
    answer = await browser.get(f"/ui/overview?at=2026-01-31T12:00:00Z&window={window}")
    assert answer.status_code == 200
    assert "data-stream" not in answer.text
    assert "2026-01-31 12:00:00 UTC" in answer.text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("window=1y", "window"),
        ("at=yesterday", "at"),
        ("at=0001-01-01T00:00:00Z", "allowed are the years 1971 to 2200"),
        ("tenat=x", "not a query parameter here"),
        ("window=2h&window=7d", "given twice"),
    ],
)
async def test_a_page_says_what_is_allowed_when_a_query_is_wrong(
    browser: Browser, query: str, said: str
) -> None:
    answer = await browser.get(f"/ui/overview?{query}")
    assert answer.status_code == 422
    assert answer.headers["Content-Type"].startswith("text/html")
    assert said in html.unescape(answer.text)


async def test_a_name_is_text_when_it_looks_like_an_element(browser: Browser) -> None:
    answer = await browser.get("/ui/<script>alert(1)</script>")
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text


async def test_nothing_is_loaded_from_elsewhere_and_no_script_is_inline(browser: Browser) -> None:
    for path in ("/ui/login", "/ui/overview", "/ui/nowhere"):
        answer = await browser.get(path)
        policy = answer.headers.get("Content-Security-Policy", "")
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy or path == "/ui/login"
        loaded: list[Any] = re.findall(r'(?:src|href|action)="([^"]*)"', answer.text)
        assert all(one.startswith(("/", "#", "?", "data:,")) or not one for one in loaded), loaded
    for template in TEMPLATES.iterdir():
        assert not re.search(r"<script(?! src)|<style| style=|\son\w+=|javascript:", template.read_text()), (
            template
        )


@pytest.mark.parametrize("name", sorted(ASSETS))
async def test_an_asset_is_sent_to_anyone_and_kept_until_it_changes(call: AdminCalls, name: str) -> None:
    answer = await call("GET", f"/ui/assets/{name}", token=None)
    assert answer.content == asset(name)
    assert answer.headers["Content-Type"].startswith(ASSETS[name])
    assert "immutable" in answer.headers["Cache-Control"]


def test_prefill_and_decode_have_the_colours_that_they_have_in_the_console() -> None:
    text = asset("pages.css").decode()
    assert f"--prefill: {colours.PREFILL}" in text
    assert f"--decode: {colours.DECODE}" in text
    assert f"--good: {colours.GOOD}" in text
    assert f"--bad: {colours.BAD_ON_DARK}" in text


@pytest.mark.parametrize(
    ("value_ms", "text"), [(None, "-"), (8.06, "8.1 ms"), (9999.0, "9999 ms"), (39_700.0, "39.7s")]
)
def test_a_figure_has_one_unit(value_ms: float | None, text: str) -> None:
    assert ms_with_unit(value_ms) == text
