"""Page, console, REST and metrics say the same of the same instants of one overload, which comes and goes."""

from __future__ import annotations

import csv
import html
import io
import re

import pytest
from browsers import Browser
from console_daemon import ConsoleDaemon
from emulated_node import EmulatedNode
from scrapes import samples
from stores import AdminCalls, new_database, opened
from telemetry_feeds import START_S

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.incidents import harm_in_words
from pdmuxd.tui.show.words import sms_in_words

pytestmark = pytest.mark.slow

MOMENTS_S = (4.0, 12.0, 62.0)
"""Before the flood, in it, and behind it."""


def load(node):
    """`chat` asks twice a second; for five seconds `docs` sends far more than one GPU reads."""
    tick = round(node.now_s * 10)
    if tick % 5 == 0:
        node.ask(f"chat{tick}", "chat", input_tokens=300, output_tokens=20)
    if 50 <= tick < 100:
        for number in range(2):
            node.ask(f"docs{tick}-{number}", "docs", input_tokens=5000, output_tokens=20)


async def sheet(browser, path):
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def forward(node, daemon, seen):
    """The console gets what the daemon has told since, at the times at which it was told."""
    number, at_s = seen
    for event in node.telemetry.events.after(number, 10_000):
        daemon.send_encoded(event.type, event.data.decode(), after_s=event.at_s - at_s)
        number, at_s = event.number, event.at_s
    return number, at_s


async def test_page_console_rest_and_metrics_agree_before_in_and_behind_an_overload(console, tmp_path):
    node = EmulatedNode(chat=0.04, docs=0.04)
    daemon, seen, verdicts, is_open, splits = ConsoleDaemon(), (0, START_S), [], [], set()
    with opened(new_database(tmp_path)) as control_plane:
        for name in ("chat", "docs"):
            control_plane.create_tenant(name)
        call = AdminCalls(control_plane, telemetry=node.telemetry)
        browser = Browser(call)
        await browser.log_in()
        daemon.hello = node.telemetry.hello("admin").model_dump(mode="json")
        async with console(daemon, size=(120, 40)) as terminal:
            for moment_s in MOMENTS_S:
                # The heartbeat may tell of a step that has not been read yet; then a moment later it will be.
                while node.now_s < moment_s or not node.has_told_of_its_split:
                    load(node)
                    node.turn()
                    assert node.now_s < moment_s + 5.0
                seen = forward(node, daemon, seen)
                await terminal.settle()
                call.status = node.status()
                rest = (await call("GET", "/api/v1/attainment")).json()["tenants"]
                told = samples(node.metrics)
                page = (await browser.get("/ui/overview")).text
                verdicts.append({one["tenant"]: one["verdict"] for one in rest})
                await agree_on_tenants(node, browser, terminal, page, rest, told)
                is_open.append(bool(node.telemetry.incidents.open(node.telemetry.clock())))
                await agree_on_incidents(node, call, browser, terminal, page, told)
                splits.add(await agree_on_the_split(call, browser, terminal, page, told))
    assert [one["chat"] for one in verdicts] == ["met", "missed", "missed"]
    assert is_open == [False, True, False]
    assert len(splits) > 1, "the partition changed between"


async def agree_on_tenants(node, browser, terminal, page, rest, told):
    shown = {one.tenant: one for one in terminal.app.state.tenants.tenants}
    listed = {one["tenant"]: one for one in await sheet(browser, "/ui/tenants.csv")}
    assert set(shown) == set(re.findall('<tr data-tenant="([^"]+)"', page)), "those with traffic"
    assert {one["tenant"] for one in rest if one["verdict"] != "no_traffic"} == set(shown)
    for one in rest:
        name = one["tenant"]
        assert listed[name]["verdict"] == one["verdict"]
        if name not in shown:
            continue
        load = shown[name]
        row = re.search(f'<tr data-tenant="{name}" data-verdict="(\\w+)">(.*?)</tr>', page, re.DOTALL)
        assert row[1] == one["verdict"] == load.verdict
        late = told["pdmuxd_gateway_late_requests", (("tenant", name),)]
        assert one["late_now"] == load.late_now == late
        (lately,) = (each for each in one["ttft"] if each["window_ms"] == 300_000)
        judged = told.get(("pdmuxd_delivered_ttft_requests_total", (("tenant", name),)), 0)
        met = told.get(("pdmuxd_delivered_ttft_met_total", (("tenant", name),)), 0)
        # Metrics count a request when it ends; with its first token, or late without, it is judged before.
        begun = node.begun(name)
        assert lately["judged"] == judged + late + begun
        assert judged - met + late <= lately["missed"] <= judged - met + late + begun
        ratios = [
            each["attainment_ratio"]
            for kind in ("ttft", "tbt")
            for each in one[kind]
            if each["window_ms"] == 300_000 and each["attainment_ratio"] is not None
        ]
        share = formats.percent(min(ratios, default=None), 1)
        assert f'data-key="met">{share}<' in row[2]
        # The last of its lines is its row of the table; the verdict may begin with its name too.
        *_, line = (line for line in terminal.text.splitlines() if line[2:].split()[:1] == [name])
        assert (line[0] == "!") == (one["verdict"] == "missed")
        assert f" {share} " in line


async def agree_on_incidents(node, call, browser, terminal, page, told):
    open_ = (await call("GET", "/api/v1/incidents?state=open")).json()["incidents"]
    of_rest = {(one["tenant"], one["cause"]) for one in open_}
    of_page = await sheet(browser, "/ui/incidents?csv=incidents")
    assert {(one["tenant"], one["cause"]) for one in of_page if not one["over_at"]} == of_rest
    assert {
        (one.tenant, one.cause) for one in terminal.app.state.tenants.incidents if one.state == "open"
    } == of_rest
    assert {
        (dict(labels)["tenant"], dict(labels)["cause"])
        for (name, labels), count in told.items()
        if name == "pdmuxd_incident" and count
    } == of_rest
    verdict = html.unescape(re.search('data-live="verdict">([^<]*)<', page)[1])
    for one in open_[:1]:
        assert verdict.startswith(f"{one['tenant']} misses")
        assert f"{one['tenant']} misses" in terminal.text.splitlines()[1]
        assert harm_in_words(node.telemetry.incidents.open(node.telemetry.clock())[0]) in terminal.words


async def agree_on_the_split(call, browser, terminal, page, told):
    used = (await call("GET", "/api/v1/partitions")).json()["groups"]
    in_force = next(one for one in used if one["in_force"])
    split = in_force["prefill_sms"], in_force["decode_sms"]
    assert told["pdmuxd_engine_partition_id", ()] == in_force["partition_id"]
    assert (told["pdmuxd_engine_prefill_sms", ()], told["pdmuxd_engine_decode_sms", ()]) == split
    stats = (await call("GET", "/api/v1/engine")).json()["stats"]
    assert (stats["prefill_sms"], stats["decode_sms"]) == split
    latest = terminal.app.state.stats
    assert (latest.prefill_sms, latest.decode_sms) == split
    words = sms_in_words(latest.mode, *split)
    assert re.search('data-live="split">([^<]*)<', page)[1] == words
    assert f"now {words}" in terminal.text
    splits = await sheet(browser, "/ui/partitions?csv=splits")
    assert [one["split"] for one in splits if one["in_force"] == "True"] == [f"{split[0]} | {split[1]}"]
    return split
