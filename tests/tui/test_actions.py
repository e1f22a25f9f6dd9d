"""Engine, decisions, partitions and the guard: by key presses."""

from __future__ import annotations

import pytest
import routes
import scenes
from console_daemon import problem

from pdmuxd.tui.decisions.screen import DecisionsScreen


@pytest.fixture
def served(busy):
    routes.serve_all(busy)
    return busy


def done(action):
    return {"action": action, "changed": True, "state": "draining", "text": f"{action}: 5 in flight finish"}


def posts(daemon):
    return [
        path.rpartition("/")[2] for method, path, _ in daemon.calls if method == "POST" and "engine" in path
    ]


@pytest.mark.parametrize(("key", "action"), [("d", "drain"), ("x", "restart")])
async def test_a_dangerous_action_is_done_only_when_the_name_is_typed(console, served, key, action):
    served.answer("POST", f"/engine/{action}", done(action), 202)
    async with console(served) as terminal:
        await terminal.press("6", key)
        await terminal.until_shown("Type llama-8b and Enter")
        await terminal.press("x", "enter")
        await terminal.until_shown("that is not the name; nothing was done")
        assert posts(served) == []
        await terminal.press("ctrl+u", *"llama-8b", "enter")
        await terminal.until_shown(f"{action}: 5 in flight finish")
    assert posts(served) == [action]


@pytest.mark.parametrize(("key", "action"), [("a", "start"), ("u", "resume")])
async def test_a_harmless_action_is_done_at_once_when_its_key_is_pressed(console, served, key, action):
    served.answer("POST", f"/engine/{action}", done(action), 202)
    async with console(served) as terminal:
        await terminal.press("6", key)
        await terminal.until_shown(f"{action}: 5 in flight finish")


async def test_nothing_is_done_when_the_name_is_not_typed(console, served):
    async with console(served) as terminal:
        await terminal.press("6", "d", "escape")
        await terminal.answered()
    assert posts(served) == []


async def test_the_reason_is_shown_when_the_engines_state_forbids_an_action(console, served):
    refusal = problem(409, "conflict", "nothing is drained")
    served.answer("POST", "/engine/resume", lambda body: refusal)
    async with console(served) as terminal:
        await terminal.press("6", "u")
        await terminal.until_shown("nothing is drained")


async def test_every_action_says_why_not_when_the_token_only_reads(console, served):
    served.hello = scenes.hello(role="reader")
    async with console(served) as terminal:
        await terminal.press("6")
        await terminal.until_shown("disabled: the read-only token")
        for key in "adux":
            await terminal.press(key)
        await terminal.until_shown("No change was made")
        assert "Type llama-8b" not in terminal.text
    assert posts(served) == []


async def test_the_log_stays_when_it_is_scrolled_back(console, served):
    async with console(served) as terminal:
        await terminal.press("6")
        await terminal.answered()
        assert "INFO step 3900" in terminal.text
        await terminal.press("pageup")
        assert "10 lines below" in terminal.text
        assert "INFO step 3900" not in terminal.text
        await terminal.press("end")
        assert "INFO step 3900" in terminal.text


async def test_only_its_rows_are_left_when_a_reason_is_chosen(console, served):
    served.send("decision", scenes.decision(500, reason="fused_fits", mode="fused"))
    async with console(served) as terminal:
        await terminal.press("5")
        await terminal.until_shown("fused_fits")
        await terminal.press("f")
        assert "; reason best_fit" in terminal.text
        assert "fused_fits" not in "\n".join(terminal.text.splitlines()[3:19])


async def test_the_daemon_is_asked_when_decisions_are_filtered_by_tenant(console, served):
    async with console(served) as terminal:
        await terminal.press("5", "slash", *"tenant:chat", "enter")
        await terminal.until_shown("decode_alone")
    assert served.queries["/api/v1/decisions"]["tenant"] == "chat"


async def test_the_log_stands_still_when_it_is_held(console, served):
    async with console(served) as terminal:
        await terminal.press("5", "space")
        served.send("decision", scenes.decision(900, reason="resumed"))
        await terminal.settle()
        assert "PAUSED" in terminal.text
        assert "resumed" not in terminal.text
        await terminal.press("space")
        assert "resumed" in terminal.text


async def test_a_screen_is_not_painted_when_its_widgets_are_not_there_yet(console, served):
    class Empty(DecisionsScreen):
        def body(self):
            return ()

    async with console(served) as terminal:
        await terminal.app.push_screen(Empty())
        terminal.app.paint()
        await terminal.settle()
        assert isinstance(terminal.app.screen, Empty)


async def test_the_cursor_stays_on_its_decision_when_newer_ones_come(console, served):
    async with console(served) as terminal:
        await terminal.press("5", "down", "down")
        await terminal.until_shown("Why decision 27")
        for number in range(40):
            served.send("decision", scenes.decision(600 + number))
        await terminal.settle()
        assert "Why decision 27" in terminal.text


@pytest.mark.slow
async def test_a_request_is_found_when_its_id_is_typed(console, served):
    async with console(served) as terminal:
        await terminal.press("5", "i", *f"{7:032x}", "enter")
        await terminal.until_shown("prefill began")
        await terminal.press("escape", "i", "f", "enter")
        await terminal.until_shown("No such request")


async def test_the_split_moves_when_the_slider_does(console, served):
    async with console(served) as terminal:
        await terminal.press("3")
        await terminal.until_shown("worst case 30.0 ms of 40 ms")
        await terminal.press(*["pagedown"] * 5)
        await terminal.until_shown("TBT target 23 ms")
        await terminal.until_shown("48 SMs decode and 84 prefill")
        await terminal.press("right")
        await terminal.until_shown("of 24 ms")


async def test_the_screen_says_so_when_the_daemon_does_not_serve_the_guard(console, busy):
    async with console(busy) as terminal:
        await terminal.press("4")
        await terminal.answered()
        assert terminal.text.count("this daemon does not serve it") == 3


async def test_another_partition_is_shown_when_the_arrow_is_pressed(console, served):
    async with console(served) as terminal:
        await terminal.press("4")
        await terminal.until_shown("Guard beside decode on 16 SMs")
        await terminal.press("right")
        await terminal.until_shown("Guard beside decode on 48 SMs")
        assert "1.31↑" in terminal.text


async def test_screens_open_when_their_tabs_are_clicked(console, served):
    async with console(served) as terminal:
        await terminal.pilot.click("Tabs", offset=(terminal.text.splitlines()[0].index("Decisions"), 0))
        await terminal.until_shown("[5 Decisions]")


async def test_what_is_left_is_counted_when_the_engine_drains(console, busy):
    routes.serve_all(busy)
    async with console(busy) as terminal:
        await terminal.press("6")
        busy.send("engine", scenes.engine(state="draining", held=True), after_s=5)
        busy.send("stats", scenes.stats(in_flight=7))
        await terminal.until_shown("draining: 7 left; 7 at the gateway; in the engine 3 waiting")
        busy.send("stats", scenes.stats(in_flight=0), after_s=3)
        await terminal.until_shown("+ safe now: nothing is in flight")
        busy.send("engine", scenes.engine(state="starting", restarts=1))
        busy.send("engine", scenes.engine(restarts=1), after_s=2)
        busy.send("stats", scenes.stats(), after_s=1)
        await terminal.until_shown("serving 5 s → draining 3 s → starting 2 s → serving 1 s")


async def test_only_lines_that_hold_it_are_left_when_the_log_is_searched(console, busy):
    routes.serve_all(busy)
    async with console(busy) as terminal:
        await terminal.press("6", "slash", *"KV POOL", "enter")
        await terminal.until_shown("lines hold 'KV POOL'")
        assert "KV pool is full" in terminal.text
        assert "step 3900" not in terminal.text


async def test_earlier_decisions_are_there_when_the_console_opens(console, daemon):
    earlier = [scenes.decision(7428, -1), scenes.decision(7427, -2, reason="decode_alone")]
    daemon.answer("GET", "/decisions", {"decisions": earlier, "total_seen": 7429})
    daemon.send("decision", scenes.decision(7429))
    async with console(daemon) as terminal:
        await terminal.press("5")
        await terminal.until_shown("7,429 since the daemon began")
        rows = [line for line in terminal.text.splitlines() if "P 84 | D 48" in line]
        assert len(rows) == 3


async def test_the_policy_is_known_when_the_engine_has_only_restarted(console, busy):
    async with console(busy) as terminal:
        busy.send("engine", scenes.engine(restarts=1, policy=None))
        await terminal.press("6")
        assert "policy auto" in terminal.words
