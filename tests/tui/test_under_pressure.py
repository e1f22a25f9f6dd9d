"""Many sit out, eight prefills are set aside and a tenant is capped, at 80x24: all of it is said, and nothing
else."""

from __future__ import annotations

import re

import pytest
import routes
import scenes

from pdmuxd.tui.client.wire import TbtTarget
from pdmuxd.tui.show.reasons import sitting_out
from pdmuxd.tui.show.words import REASONS

LONG = "a-tenant-whose-name-is-as-long-as-any-name-of-tenants-may-be-xy"
CAPPED = {"tbt_capped_since": scenes.instant(-100), "planned_tbt_ms": 62.5}
ASIDE = ("preempt_when_drained", "preempted_for_shorter", "resumed", "best_fit")


@pytest.fixture
def pressed(daemon):
    """Nine prompts are in prefill, eight of them set aside; 120 of 128 sit out for the long name's target."""
    routes.serve_all(daemon)
    strictest = {"tenant": LONG, "tbt_ms": 20.0}
    daemon.send(
        "stats",
        scenes.stats(
            prefilling=9, running=128, waiting=240, waiting_total=251, late_now=97, strictest_tbt=strictest
        ),
    )
    loads = [
        scenes.tenant_load("chat", **CAPPED),
        scenes.tenant_load(LONG, waiting=240, late_now=97, oldest_wait_ms=61_000.0, verdict="missed"),
        scenes.tenant_load("batch"),
    ]
    daemon.send("tenants", scenes.tenants() | {"tenants": loads})
    for number in range(40):
        out = {"sitting_out": 120, "sitting_out_for": strictest} if number % 2 else {}
        one = scenes.decision(
            number,
            number / 10,
            reason=ASIDE[number // 2 % 4],
            decode_bs=128,
            decode_reused_tokens=1_234_567,
            prefill_new_tokens=120_500,
            prefill_layers=80,
            decode_steps=4,
            **out,
        )
        daemon.send("decision", one)
    chat = routes.tenant("chat", max_tbt_cost_ratio=0.1)
    daemon.answer("GET", "/tenants", [chat, routes.tenant(LONG), routes.tenant("batch")])
    return daemon


@pytest.mark.parametrize("keys", ["1", "2", "3", "4", "5", "6"])
async def test_no_line_is_wider_and_no_figure_is_cut_when_the_node_is_pressed(console, pressed, keys):
    async with console(pressed) as terminal:
        await terminal.press(*keys)
        await terminal.answered()
        lines = terminal.text.splitlines()
        assert len(lines) == 24
        assert all(len(line) <= 80 for line in lines)
        # Names and words may be cut off, a figure never: half of one would be another.
        assert not re.search(r"\d…", terminal.text), terminal.text


async def test_who_misses_what_and_what_waits_is_said_whole_when_a_name_is_long(console, pressed):
    async with console(pressed) as terminal:
        status = terminal.text.splitlines()[1]
        assert re.search(rf"! {LONG[:15]}… misses TTFT since [0-9:]+, 97 late ", status)
        assert "Likely cause: queued behind its own requests, more than the GPU serves." in terminal.text
        assert f"! {LONG[:23]}… misses TTFT of 500 ms + 800 per 1K tokens since" in terminal.text
        assert "wait 251, 97 late" in terminal.text


async def test_what_a_cap_does_is_said_whole_on_the_tenants_screen(console, pressed):
    async with console(pressed) as terminal:
        await terminal.press("2", "slash")
        await terminal.type("chat")
        await terminal.press("enter", "enter")
        await terminal.answered()
        assert "cost    TBT may cost 10.0%; capped since 11:58:20, steps planned for 62.5 ms" in terminal.text
        assert re.search(r"^60 min +100\.0%", terminal.text, re.MULTILINE), "the windows are all there"


async def test_a_tenant_that_may_cost_something_and_is_not_capped_is_not_shown_as_capped(console, pressed):
    load = scenes.tenant_load("chat")
    pressed.send("tenants", scenes.tenants() | {"tenants": [load]})
    async with console(pressed) as terminal:
        await terminal.press("2", "enter")
        await terminal.answered()
        assert "cost    TBT may cost 10.0% of the prefill time, is not capped" in terminal.text
        assert "planned for" not in terminal.text


async def test_who_sits_out_and_why_is_said_whole_when_a_prefill_is_set_aside(console, pressed):
    async with console(pressed) as terminal:
        await terminal.press("5")
        await terminal.answered()
        rows = [line for line in terminal.text.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
        assert len(rows) > 8
        assert sum("120 out, " in row for row in rows) == pytest.approx(len(rows) / 2, abs=1)
        seen = set()
        for _ in range(8):
            why = terminal.words
            seen |= {reason for reason in ASIDE if REASONS[reason] in why and f"({reason})" in why}
            assert "decode 128 requests, context 1.2M, 4 steps" in why
            assert "prefill 120K new tokens, 80 layers" in why
            if "relaxed sit out" in why:
                assert f"120 relaxed sit out for {LONG[:23]}…'s 20 ms" in why
                assert "31 ms predicted × 1.20 guard = 37 ms at worst, slack 2.8 ms" in why
            await terminal.press("down")
        assert seen == set(ASIDE)


async def test_the_engines_screen_counts_what_is_set_aside_as_in_prefill(console, pressed):
    async with console(pressed) as terminal:
        await terminal.press("6")
        await terminal.answered()
        assert "9 in prefill, 128 in decode" in terminal.words


def test_one_that_sits_out_is_one():
    assert sitting_out(1, TbtTarget(tenant="chat", tbt_ms=20.0)) == "1 relaxed sits out for chat's 20 ms"
    assert sitting_out(0, None) == ""
