"""The daemon away, restarting, of another version, refusing: a banner, another attempt, and no traceback."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC

import httpx
import pytest
import scenes

from pdmuxd.tui.client.target import Clock
from pdmuxd.tui.state.lag import INTERVAL_S


async def test_the_banner_says_so_and_data_is_marked_stale_when_the_daemon_goes_away(console, busy):
    async with console(busy) as terminal:
        assert "STALE" not in terminal.text
        busy.is_away = True
        busy.cut()
        await terminal.until(lambda: terminal.app.state.connection.link == "away")
        busy.time.monotonic_s += 12
        await terminal.until_shown("No connection to http://127.0.0.1:8081")
        await terminal.until_shown("What is shown is 12 s old")
        await terminal.until_shown("STALE 12 s")
        assert "─ Demand and what is served" in terminal.text
        assert "○ away" in terminal.text

        busy.is_away = False
        await terminal.press("r")
        await terminal.until(lambda: terminal.app.state.connection.link == "live")
        busy.send("stats", scenes.stats(12))
        await terminal.settle()
        await terminal.until_shown("● serving")
        assert "STALE" not in terminal.text
        assert "No connection" not in terminal.text


@pytest.mark.parametrize("ticks", [0, 1, 3])
async def test_every_panel_is_marked_when_figures_are_stale_from_some_frame_on(console, busy, ticks):
    async with console(busy) as terminal:
        busy.is_away = True
        busy.cut()
        await terminal.until(lambda: terminal.app.state.connection.link == "away")
        before = terminal.app.pacer.painted
        await terminal.until(lambda: terminal.app.pacer.painted >= before + ticks)
        busy.time.monotonic_s += 12
        # By the console's own frames alone: what a test paints is painted whole.
        await terminal.until(lambda: terminal.text.count("STALE 12 s") == 4)


async def test_nothing_is_lost_or_doubled_when_the_connection_is_cut(console, busy):
    async with console(busy) as terminal:
        seen = terminal.app.state.decisions_seen
        last = busy.sent
        busy.cut()
        await terminal.until(lambda: terminal.app.state.connection.link == "away")
        await terminal.press("r")
        await terminal.until(lambda: terminal.app.state.connection.link == "live")
        assert busy.resumed_after == [None, f"{scenes.SESSION}-{last}"]
        busy.send("decision", scenes.decision(99))
        await terminal.settle()
        assert terminal.app.state.decisions_seen == seen + 4


async def test_the_id_of_a_heartbeat_is_kept_when_other_types_are_filtered(console, busy):
    async with console(busy) as terminal:
        busy.send_raw(b": alive\nid: " + scenes.SESSION.encode() + b"-777\n\n")
        busy.cut()
        await terminal.until(lambda: terminal.app.state.connection.link == "away")
        await terminal.press("r")
        await terminal.until(lambda: busy.streams == 2)
        assert busy.resumed_after[1] == f"{scenes.SESSION}-777"


async def test_it_connects_when_the_daemon_comes_later(console, daemon):
    daemon.is_away = True
    async with console(daemon) as terminal:
        await terminal.until_shown("No connection to http://127.0.0.1:8081: Connection refused")
        daemon.is_away = False
        daemon.send("stats", scenes.stats())
        daemon.time.monotonic_s += 20
        await terminal.press("r")
        await terminal.until_shown("● serving")


async def test_a_refused_token_is_said_when_it_is_wrong_and_works_once_it_is_right(console, daemon):
    daemon.token = "another"
    async with console(daemon) as terminal:
        await terminal.until_shown("refuses the token: this is not the admin token")
        await terminal.until_shown(" in 5 s")  # the attempts go on while this waits
        daemon.token = "the-admin-token"
        await terminal.press("r")
        await terminal.until_shown("● serving")


async def test_another_version_is_named_when_the_api_differs(console, daemon):
    daemon.hello = scenes.hello(api_version=2, version="3.1.0")
    async with console(daemon) as terminal:
        await terminal.until_shown("is of another version: the daemon (3.1.0) speaks API version 2")


async def test_both_versions_are_shown_when_only_they_differ(console, daemon):
    daemon.hello = scenes.hello(version="0.2.0")
    async with console(daemon, size=(120, 24)) as terminal:
        await terminal.until_shown("pdmuxd 0.2.0 (console 0.1.0)")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(404, text="nothing here"), "it has no event stream"),
        (httpx.Response(200, html="<h1>Hello</h1>"), "what answers there is not pdmuxd's admin address"),
        (httpx.Response(502, text="bad gateway"), "HTTP 502"),
        (
            httpx.Response(200, headers={"Content-Type": "text/event-stream"}, text="\n\n"),
            "closed the connection",
        ),
    ],
)
async def test_the_banner_explains_when_something_else_answers(console, daemon, answer, said):
    daemon.answer("GET", "/events", answer)
    async with console(daemon) as terminal:
        await terminal.until_shown(said)


async def test_the_screen_goes_on_when_events_cannot_be_read_or_are_new(console, busy):
    async with console(busy) as terminal:
        busy.send_raw(b"event: stats\ndata: {not json\n\nevent: stats\ndata: {}\n\n")
        busy.send_raw(b'event: brand_new\ndata: {"x": 1}\n\n')
        busy.send("stats", scenes.stats(running=77, brand_new_field=1))
        await terminal.until_shown("decoding 77")
        assert terminal.app.stream.unreadable == 2


async def test_losses_are_shown_when_the_daemon_says_so(console, busy):
    async with console(busy) as terminal:
        busy.send("gap", {"reason": "expired", "lost": 412, "from": "a", "to": "b", "at": scenes.instant()})
        await terminal.until_shown("412 events lost")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("down", "The engine is down: exit code 1."),
        ("starting", "The engine is starting: exit code 1."),
        ("draining", "The engine is draining"),
    ],
)
async def test_the_banner_says_why_when_the_engine_does_not_serve(console, busy, state, said):
    async with console(busy) as terminal:
        busy.send("engine", scenes.engine(state=state, reason="exit code 1"))
        await terminal.until_shown(said)
        busy.send("engine", scenes.engine())
        await terminal.until(lambda: terminal.app.state.engine.state == "serving")
        await terminal.settle()
        assert said not in terminal.text


async def test_the_daemon_stopping_is_said_when_it_says_bye(console, busy):
    async with console(busy) as terminal:
        busy.send("bye", {"reason": "stopping", "at": scenes.instant()}, numbered=False)
        await terminal.until_shown("the daemon is stopping")


async def test_alarms_come_and_go_when_they_are_raised_and_cleared(console, daemon):
    daemon.send("stats", scenes.stats())
    async with console(daemon) as terminal:
        daemon.send("alarm", scenes.alarm())
        await terminal.until_shown("! 11:58:00 chat: TTFT misses")
        (alarm,) = terminal.app.state.alarms.values()
        daemon.send(
            "tenants", scenes.tenants() | {"alarm_texts": {alarm.id: "what is now", "another": "is gone"}}
        )
        await terminal.until(
            lambda: [one.text for one in terminal.app.state.alarms.values()] == ["what is now"]
        )
        daemon.send("alarm", scenes.alarm(state="cleared"))
        await terminal.until(lambda: not terminal.app.state.alarms)
        await terminal.settle()
        assert "TTFT misses" not in terminal.text


async def test_lag_is_shown_and_no_event_left_out_when_events_come_late(console, busy):
    async with console(busy, size=(120, 24)) as terminal:
        events = terminal.app.state.events
        for number in range(400):
            busy.send("decision", scenes.decision(100 + number))
        busy.send("stats", scenes.stats(0.0), after_s=1.5)
        await terminal.settle()
        assert "LAG 2 s" in terminal.text
        assert terminal.app.state.events == events + 401
        busy.send("stats", scenes.stats(2.5), after_s=1.0)
        await terminal.settle()
        assert "LAG" not in terminal.text


async def test_frames_are_left_out_and_no_event_when_200_events_a_second_come(console, daemon):
    async with console(daemon, clock=Clock(zone=UTC)) as terminal:
        painted, events = terminal.app.pacer.painted, terminal.app.state.events
        started_s = time.monotonic()
        for number in range(100):
            for one in range(4):
                daemon.send("decision", scenes.decision(number * 4 + one))
            await asyncio.sleep(max(0.0, started_s + number / 50 - time.monotonic()))
        await terminal.until(lambda: terminal.app.state.events >= events + 400)
        taken_s = time.monotonic() - started_s
        assert terminal.app.state.decisions_seen == 400 * 4
        frames = terminal.app.pacer.painted - painted
        assert 1 <= frames <= taken_s / INTERVAL_S + 2


async def test_every_event_is_counted_when_ten_seconds_of_two_hundred_come_at_once(console, busy):
    async with console(busy) as terminal:
        before = terminal.app.state.decisions_seen
        for number in range(2000):
            busy.send("decision", scenes.decision(1000 + number, count=1))
        await terminal.settle()
        assert terminal.app.state.decisions_seen - before == 2000
        assert terminal.app.state.lost == 0
        assert terminal.app.state.events == busy.sent + busy.streams


async def test_nothing_untrue_is_said_before_the_first_word_of_tenants(console, daemon):
    async with console(daemon, size=(200, 60)) as terminal:
        assert "Connecting: nothing is known yet." in terminal.words
        for untrue in ("No traffic", "no tenant has had", "no engine says", "nothing was decided"):
            assert untrue not in terminal.words
        daemon.send("stats", scenes.stats())
        daemon.send("tenants", scenes.tenants() | {"tenants": []})
        await terminal.until_shown("No traffic to judge.")
