"""Tenants as a list, as CSV and each on its page; targets edited with a forecast."""

from __future__ import annotations

import csv
import io
import re
import time
from datetime import UTC, datetime

import pytest
from browsers import Browser
from stores import SLO_BODY, AdminCalls
from telemetry_feeds import loaded_telemetry

from pdmuxd.controlplane.history.batch import Batch, Series
from pdmuxd.controlplane.history.columns import Column, empty
from pdmuxd.controlplane.history.writing import HistoryWriter
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.tenant_list import PAGE

NAMES = ("chat", "search", *(f"tenant-{number:03}" for number in range(PAGE)))


@pytest.fixture
def telemetry(control_plane: ControlPlane) -> Telemetry:
    for name in ("chat", "search"):
        control_plane.create_tenant(name)
    return loaded_telemetry(control_plane.snapshot())


@pytest.fixture
async def browser(control_plane: ControlPlane, telemetry: Telemetry) -> Browser:
    made = Browser(AdminCalls(control_plane, telemetry=telemetry))
    await made.log_in()
    return made


def named(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/ui/tenants/([^"]+)">', page)


async def test_tenants_are_listed_in_pages_found_by_name_and_sent_as_csv(
    browser: Browser, control_plane: ControlPlane, telemetry: Telemetry
) -> None:
    for name in NAMES[2:]:
        control_plane.create_tenant(name)
    telemetry.on_directory(control_plane.snapshot())
    first = (await browser.get("/ui/tenants")).text
    assert named(first) == list(NAMES[:PAGE])
    assert f"{len(NAMES)} tenants" in first
    second = (await browser.get(f"/ui/tenants?after={NAMES[PAGE - 1]}")).text
    assert named(second) == list(NAMES[PAGE:])
    assert named((await browser.get("/ui/tenants?q=EAR")).text) == ["search"]
    rows = list(csv.DictReader(io.StringIO((await browser.get("/ui/tenants.csv")).text)))
    assert [row["tenant"] for row in rows] == list(NAMES)
    assert rows[0]["verdict"] == "met"
    assert rows[2]["verdict"] == "no_traffic"


async def test_tenants_of_a_time_that_is_over_are_listed_with_what_they_got(
    browser: Browser, control_plane: ControlPlane
) -> None:
    minute = int(time.time() // 3600 * 3600) - 7200
    rows = {}
    for name, missed in (("chat", 3), ("search", 0)):
        row = empty()
        row[Column.ENDED] = row[Column.TTFT_JUDGED] = 10
        row[Column.TTFT_MISSED] = missed
        rows[
            Series(tenant=name, since_ms=control_plane.directory.tenants[name].since_ms, model="m"), minute
        ] = row
    HistoryWriter(control_plane.store).write(Batch(counts=rows))
    at = datetime.fromtimestamp(minute + 600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    page = (await browser.get(f"/ui/tenants?at={at}&window=30m")).text
    assert re.findall(r'href="/ui/tenants/([a-z]+)[^"]*"', page) == ["chat", "search"]
    assert "as they were" in page
    sent = (await browser.get(f"/ui/tenants?at={at}&q=sea&csv=tenants")).text
    assert sent.splitlines() == ["tenant,met_ratio,requests,refused", "search,1.0,10,0"]
    before = (await browser.get("/ui/tenants?at=2026-01-31T12:00:00Z")).text
    assert "Nobody asked for anything in this time." in before


async def test_a_tenants_page_says_what_rest_says(
    browser: Browser, control_plane: ControlPlane, telemetry: Telemetry
) -> None:
    key = control_plane.keys.issue("chat", "laptop")
    page = (await browser.get("/ui/tenants/chat")).text
    assert "chat meets its targets" in page
    assert key.key_id in page
    assert f"<code>{key.key_id}</code></th><td>laptop</td><td>valid</td><td>serve</td>" in page
    assert key.secret not in page
    call = AdminCalls(control_plane, telemetry=telemetry)
    told = (await call("GET", "/api/v1/attainment?tenant=chat")).json()["tenants"][0]
    judged = re.findall(r"<td>(TTFT|TBT)</td><td class=\"n\">[^<]*</td><td class=\"n\">([^<]*)<", page)
    assert [int(count) for target, count in judged if target == "TTFT"] == [
        window["judged"] for window in told["ttft"]
    ]
    assert (await browser.get("/ui/tenants/nobody")).status_code == 404


async def test_a_tenants_key_sees_its_own_page_alone(browser: Browser, control_plane: ControlPlane) -> None:
    secret = control_plane.keys.issue("chat", scopes=["read"]).secret
    await browser.log_in(secret)
    assert (await browser.get("/ui")).headers["Location"] == "/ui/tenants/chat"
    own = await browser.get("/ui/tenants/chat")
    assert own.status_code == 200
    assert "search" not in own.text
    assert "/ui/tenants/chat/targets" not in own.text
    for path in ("/ui/tenants/search", "/ui/tenants", "/ui/tenants.csv", "/ui/overview", "/ui/live"):
        assert (await browser.get(path)).status_code == 403, path


def typed(**changes: str) -> dict[str, str]:
    return {name: str(value) for name, value in SLO_BODY.items()} | {"version": "1"} | changes


async def test_targets_are_set_with_who_and_why_when_the_form_is_confirmed(
    browser: Browser, control_plane: ControlPlane
) -> None:
    path = "/ui/tenants/chat/targets"
    token = {"form_token": await browser.form_token(path)}
    forecast = await browser.post(path, token | typed(tbt_ms="37"))
    assert forecast.status_code == 200
    assert "What is predicted" in forecast.text
    assert control_plane.get_slo("chat").version == 1
    done = await browser.post(path, token | typed(tbt_ms="37,5", do="set", why="ticket 4711"))
    assert (done.status_code, done.headers["Location"]) == (303, "/ui/tenants/chat#targets")
    assert control_plane.get_slo("chat").slo.tbt_s == 0.0375
    entry = control_plane.audit(limit=1)[0]
    assert (entry.action, entry.who, entry.why) == ("slo.set", "admin-token", "ticket 4711")


async def test_targets_stay_when_they_are_wrong_or_were_set_meanwhile_or_the_form_is_foreign(
    browser: Browser, control_plane: ControlPlane
) -> None:
    path = "/ui/tenants/chat/targets"
    token = {"form_token": await browser.form_token(path)}
    wrong = await browser.post(path, token | typed(tbt_ms="0", do="set"))
    assert wrong.status_code == 422
    assert "tbt_ms is 0; allowed are 1 to 10000" in wrong.text
    assert 'name="attainment_ratio" value="0.95"' in wrong.text
    for tbt in ("", "x", "nan", "1e999"):
        assert (await browser.post(path, token | typed(tbt_ms=tbt, do="set"))).status_code == 422
    assert (await browser.post(path, token | typed(version="", do="set"))).status_code == 422
    assert (await browser.post(path, token | typed(why="a\nb", do="set"))).status_code == 422
    assert (await browser.post(path, typed(do="set"))).status_code == 403
    control_plane.set_slo("chat", control_plane.get_slo("chat").slo)
    stale = await browser.post(path, token | typed(do="set"))
    assert stale.status_code == 412
    assert 'name="version" value="2"' in stale.text
    assert control_plane.get_slo("chat").version == 2


async def test_every_table_of_a_tenant_is_sent_as_csv(browser: Browser, control_plane: ControlPlane) -> None:
    control_plane.keys.issue("chat", "=laptop")
    page = (await browser.get("/ui/tenants/chat?window=2h")).text
    links = re.findall(r'class="csv" href="([^"]+)"', page)
    assert "?window=2h&amp;csv=attainment" in links
    for link in links:
        sent = await browser.get(f"/ui/tenants/chat{link.replace('&amp;', '&')}")
        assert sent.headers["Content-Type"].startswith("text/csv")
        assert f'filename="chat-{link.partition("csv=")[2]}.csv"' in sent.headers["Content-Disposition"]
        assert len(list(csv.DictReader(io.StringIO(sent.text)))) >= 1
    (key,) = csv.DictReader(io.StringIO((await browser.get("/ui/tenants/chat?csv=keys")).text))
    assert (key["label"], key["state"], key["last4"] in page) == ("'=laptop", "valid", True)
    call = AdminCalls(control_plane, telemetry=browser._call._given["telemetry"])
    (told,) = (await call("GET", "/api/v1/attainment?tenant=chat")).json()["tenants"]
    attained = list(csv.DictReader(io.StringIO((await browser.get("/ui/tenants/chat?csv=attainment")).text)))
    for kind, target in (("ttft", "TTFT"), ("tbt", "TBT")):
        counted = [(int(one["judged"]), int(one["missed"])) for one in attained if one["target"] == target]
        assert counted == [(one["judged"], one["missed"]) for one in told[kind]]
    owners = Browser(call)
    await owners.log_in(control_plane.keys.issue("search", scopes=("read",)).secret)
    assert (await owners.get("/ui/tenants/chat?csv=keys")).status_code in (403, 404)


async def test_a_reader_cannot_edit(browser: Browser, control_plane: ControlPlane) -> None:
    await browser.log_in(control_plane.admin_tokens.issue("look", role="reader").secret)
    assert "Change the targets" not in (await browser.get("/ui/tenants/chat")).text
    for answer in (
        await browser.get("/ui/tenants/chat/targets"),
        await browser.post("/ui/tenants/chat/targets", typed(do="set")),
    ):
        assert answer.status_code == 403
        assert "may read and not change" in answer.text
