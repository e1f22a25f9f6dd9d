"""Tenants, one tenant, and the edit of its targets: by key presses."""

from __future__ import annotations

import re

import msgspec
import pytest
import routes
import scenes
from console_daemon import problem
from textual.widgets import Input

from pdmuxd.tui.client.wire import RequestEvent
from pdmuxd.tui.show.requests import cells
from pdmuxd.tui.show.roles import Role

pytestmark = pytest.mark.slow


@pytest.fixture
def served(busy):
    routes.serve_all(busy)
    return busy


async def open_edit(terminal):
    for key in ("2", "enter", "e"):
        await terminal.press(key)
        await terminal.answered()


async def type_tbt(terminal, text):
    await terminal.press("home", "ctrl+k", *text)
    await terminal.until_shown(f"of {text} ms")


async def test_the_worst_come_first_when_sorted_by_budget(console, served):
    async with console(served) as terminal:
        await terminal.press("2")
        await terminal.answered()
        for _ in range(30):
            await terminal.press("s")
            if "▼budget" in terminal.text:
                break
        names = [line.split()[0] for line in terminal.text.splitlines()[4:8]]
        assert names == ["batch", "search", "chat", "quiet"]


async def test_only_its_rows_are_left_when_a_name_is_typed(console, served):
    async with console(served) as terminal:
        await terminal.press("2")
        await terminal.answered()
        await terminal.press("slash", "a", "t", "enter")
        text = terminal.text
        assert "batch" in text
        assert "chat" in text
        assert "search" not in text
        await terminal.press("slash", "escape")
        assert "search" in terminal.text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "there is no tenant: pdmuxd tenant create NAME"),
        (problem(500, "database", "the disk is full"), "the disk is full"),
    ],
)
async def test_it_is_said_why_there_is_no_tenant_when_there_is_none(console, daemon, answer, said):
    daemon.answer("GET", "/tenants", answer)
    async with console(daemon) as terminal:
        await terminal.press("2")
        await terminal.until_shown(said)
        await terminal.press("slash", "x", "enter")
        await terminal.until_shown("no tenant of that name")


async def test_the_edit_is_applied_with_its_version_when_it_is_confirmed(console, served):
    puts = []

    def put(body):
        puts.append(body)
        return routes.slo(version=4, **body)

    served.answer("PUT", "/tenants/chat/slo", put)
    async with console(served) as terminal:
        await open_edit(terminal)
        assert "usual load (14 decode): 32 SMs decode and 100 prefill: worst case 30.0" in terminal.text
        await type_tbt(terminal, "25")
        assert "(-16% against" in terminal.text
        assert "busy load (31 decode)" in terminal.text
        assert "chat 93% of the time" in terminal.text
        assert re.search(r"! batch +99.0% +93.0% → 95.1% ≥94% +901 → 1200", terminal.text)
        await terminal.press("enter")
        await terminal.until_shown("y applies it")
        assert "TBT, ms" in terminal.text
        assert "40  →" in terminal.text
        assert not puts
        await terminal.press("y")
        await terminal.until_shown("version 4 of chat's targets is set")
    assert puts == [
        {"ttft_fixed_ms": 500, "ttft_per_1k_new_tokens_ms": 800, "tbt_ms": 25, "attainment_ratio": 0.99}
    ]
    assert served.matched == ['"3"']


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["ctrl+a", "ctrl+k", "2", "5"], "25"),
        (["end", "backspace", "backspace", "2", "5"], "25"),
        (["2", "5", "home", "1"], "125"),
        (["home", "delete", "3"], "30"),
    ],
)
async def test_keys_are_taken_in_order_when_they_come_faster_than_they_are_handled(
    console, served, keys, value
):
    async with console(served) as terminal:
        await open_edit(terminal)
        await terminal.press_at_once(*keys)
        await terminal.until_shown(f"of {value} ms")
        typed = [field.value for field in terminal.app.screen.query(Input)]
    assert typed == ["500", "800", value, "0.99", ""]


async def test_nothing_but_the_tbt_target_takes_keys_when_they_are_typed_while_the_edit_opens(
    console, served
):
    async with console(served) as terminal:
        for key in ("2", "enter"):
            await terminal.press(key)
            await terminal.answered()
        await terminal.press_at_once("e", "2", "5")
        await terminal.until_shown("Targets of chat, version 3")
        await terminal.press_at_once("home", "ctrl+k", "3", "3")
        await terminal.until_shown("of 33 ms")
        typed = [field.value for field in terminal.app.screen.query(Input)]
    assert typed == ["500", "800", "33", "0.99", ""]


async def test_an_infeasible_target_is_said_and_forced_when_it_is_confirmed_all_the_same(console, served):
    forced = []
    served.answer("PUT", "/tenants/chat/slo", lambda body: routes.slo(version=4, **body))
    async with console(served) as terminal:
        await open_edit(terminal)
        await type_tbt(terminal, "7")
        assert "!! chat cannot keep its targets" in terminal.text
        assert "tbt_ms: no plan meets it; lowest feasible 15 ms" in terminal.text
        await terminal.press("enter")
        await terminal.until_shown("y applies it all the same")
        await terminal.press("y")
        await terminal.until_shown("version 4 of chat's targets is set")
        forced = served.queries["/api/v1/tenants/chat/slo"]
    assert forced == {"force": "true"}


async def test_nothing_is_applied_and_both_versions_are_shown_when_someone_else_was_first(console, served):
    served.answer("PUT", "/tenants/chat/slo", lambda body: problem(412, "stale-version", "version 4 holds"))
    async with console(served) as terminal:
        await open_edit(terminal)
        await type_tbt(terminal, "25")
        await terminal.press("enter")
        await terminal.until_shown("y applies it")
        served.answer("GET", "/tenants/chat/slo", routes.slo(version=4, tbt_ms=33.0))
        await terminal.press("y")
        await terminal.until_shown("Nothing was applied: someone else set version 4")
        assert "40  →" in terminal.text
        assert "33" in terminal.text

        sent = []
        served.answer(
            "PUT", "/tenants/chat/slo", lambda body: sent.append(body) or routes.slo(version=5, **body)
        )
        await terminal.press("escape")
        await terminal.until_shown("now compared with version 4")
        await terminal.press("enter")
        await terminal.until_shown("33  →")
        await terminal.press("y")
        await terminal.until_shown("version 5 of chat's targets is set")
    assert sent[0]["tbt_ms"] == 25
    assert served.matched == ['"3"', '"4"']


@pytest.mark.parametrize("typed", ["0", "20000", "fast", ""])
async def test_the_field_and_what_is_allowed_are_named_when_a_target_is_wrong(console, served, typed):
    async with console(served) as terminal:
        await open_edit(terminal)
        await terminal.press("home", "ctrl+k", *typed, "enter")
        await terminal.until_shown(f"! TBT, ms is '{typed}'; allowed are 1 to 10000")
    assert not any(method == "PUT" for method, *_ in served.calls)


async def test_nothing_is_sent_when_the_edit_is_given_up(console, served):
    async with console(served) as terminal:
        await open_edit(terminal)
        await type_tbt(terminal, "25")
        await terminal.press("enter")
        await terminal.until_shown("y applies it")
        await terminal.press("escape", "escape")
        assert "Edits of the targets" in terminal.text
    assert not any(method == "PUT" for method, *_ in served.calls)


async def test_the_edit_is_refused_with_a_reason_when_the_token_only_reads(console, served):
    served.hello = scenes.hello(role="reader")
    async with console(served) as terminal:
        await open_edit(terminal)
        await terminal.until_shown("the read-only token may look and not")
        assert "READ-ONLY" in terminal.text
        assert "no edit: read-only" in terminal.text
        assert "Enter reviews" not in terminal.text


async def test_a_requests_life_is_shown_when_a_missed_one_is_opened(console, served):
    async with console(served) as terminal:
        for key in ("2", "enter", "down", "enter"):
            await terminal.press(key)
            await terminal.answered()
        assert f"{7:032x}" in terminal.text
        assert "! missed TBT: 1 of 255 gaps was too long" in terminal.text


async def test_causes_are_grouped_when_requests_missed_their_targets(console, served):
    queued = [{"target": "ttft", "by_ms": 1150.0, "cause": "queued", "text": "waited"}]
    slow = [{"target": "ttft", "by_ms": 9.0, "cause": "prefill_slow", "text": "prefilled"}]
    for number in range(4):
        life = {"ttft_ms": 2300.0, "ttft_target_ms": 1150.0, "missed": queued if number else slow}
        served.send("request", scenes.request_life(50 + number, **life))
    async with console(served) as terminal:
        await terminal.press("2", "enter")
        await terminal.answered()
        assert re.search(r"75% TTFT +3 +\+100% queued behind its own requests", terminal.text)
        assert re.search(r"25% TTFT +1 +\+100% its own prefill is slow", terminal.text)


async def test_the_split_and_the_host_are_named_when_they_are_to_blame(console, served):
    slow = {"target": "tbt", "by_ms": 9.0, "cause": "slower_than_predicted", "text": "steps took longer"}
    late = {"target": "tbt", "by_ms": 9.0, "cause": "host_late", "text": "delivered late"}
    for number, decode_sms in enumerate((48, 48, 48, 36)):
        split = {"mode": "split", "prefill_sms": 132 - decode_sms, "decode_sms": decode_sms}
        served.send("request", scenes.request_life(50 + number, tbt_gaps_met=250, missed=[slow | split]))
    delivered = {"delivered_ttft_ms": 230.0, "delivered_tbt_max_ms": 60.0, "delivered_tbt_gaps_missed": 4}
    served.send("request", scenes.request_life(60, tbt_gaps_met=255, missed=[late], **delivered))
    async with console(served) as terminal:
        await terminal.press("2", "enter")
        await terminal.answered()
        assert re.search(r"TBT +15 +\+27% P 84 \| D 48 +steps take longer than predicted", terminal.text)
        await terminal.press("z", "z")
        await terminal.until_shown("host is late")
        assert re.search(r"TBT +5 +\+27% P 96 \| D 36 +steps take", terminal.text)
        # The gaps are counted as the client saw them.
        assert re.search(r"TBT +4 +\+50% - +the host is late", terminal.text)


async def test_a_near_miss_is_not_red_when_the_tenant_gets_what_it_was_promised():
    near = msgspec.convert(
        scenes.request_life(tbt_max_ms=40.5, tbt_target_ms=40.0), RequestEvent, strict=False
    )
    assert cells(near, None, None, is_met=True)[3].role is Role.PLAIN
    assert cells(near, None, None, is_met=False)[3].role is Role.BAD
    far = msgspec.structs.replace(near, tbt_max_ms=80.0)
    assert cells(far, None, None, is_met=True)[3].role is Role.BAD


async def test_the_newest_edit_stays_in_sight_when_it_is_too_early_to_compare(console, served):
    early = routes.effect(state="too_early", after=None, at=scenes.instant(-20))
    served.answer("GET", "/effects", {"effects": [early]})
    async with console(served) as terminal:
        await terminal.press("2", "enter")
        await terminal.answered()
        assert "too early to compare: 20 s since" in terminal.text
        assert re.search(r"^ +3 .* 40 .*in force", terminal.text, re.MULTILINE)
        served.answer("GET", "/effects", {"effects": [routes.effect()]})
        terminal.app.screen.poll()
        await terminal.until_shown("99.4% → 95.1%")
        assert "Edits of the targets" not in terminal.text
        assert "4.0 → 1.0/s; on the same requests TTFT 99.5% → 99.4%, TBT 94.2% → 99.8%" in terminal.text
