"""Keys that come faster than screens open: each does what it would have done at leisure."""

from __future__ import annotations

import asyncio

import pytest
import routes
from console_daemon import problem
from textual import events
from textual.widgets import Input

pytestmark = pytest.mark.slow

SLO = "/api/v1/tenants/chat/slo"


@pytest.fixture
def served(busy):
    routes.serve_all(busy)
    busy.answer("PUT", "/tenants/chat/slo", lambda body: routes.slo(version=4, **body))
    return busy


def puts(daemon):
    return [body["tbt_ms"] for method, path, body in daemon.calls if (method, path) == ("PUT", SLO)]


def boxes(terminal):
    """What is in the fields of the screen in front."""
    return [box.value for box in terminal.app.screen.query(Input)]


async def open_tenant(terminal):
    for key in ("2", "enter"):
        await terminal.press(key)
        await terminal.answered()


async def until_painted(terminal):
    """The console's own timer has painted a frame since."""
    before = terminal.app.pacer.painted
    await terminal.until(lambda: terminal.app.pacer.painted > before)


@pytest.mark.parametrize("typed", ["q", "abc", "a1", "t?r", "s/i"])
@pytest.mark.parametrize(("key", "screen"), [("2", "[2 Tenants]"), ("5", "[5 Decisions]")])
async def test_all_of_it_is_filtered_by_when_it_is_typed_right_behind_the_slash(
    console, served, key, screen, typed
):
    async with console(served) as terminal:
        await terminal.press(key)
        await terminal.answered()
        theme = terminal.app.theme
        await terminal.press_at_once("/", *typed)
        await terminal.until(lambda: boxes(terminal) == [typed])
        assert screen in terminal.text
        assert terminal.app.theme == theme


async def test_the_new_screen_takes_the_keys_when_they_are_typed_right_behind_its_own(console, served):
    async with console(served) as terminal:
        await terminal.press_at_once("5", "/", *"nothing")
        await terminal.until_shown("no decision fits")
        assert "[5 Decisions]" in terminal.text


async def test_the_row_that_is_left_is_opened_when_enter_follows_the_filter(console, served):
    async with console(served) as terminal:
        await terminal.press("2")
        await terminal.answered()
        await terminal.press_at_once("/", *"sea", "enter", "enter")
        await terminal.until_shown("Tenant search")


async def test_keys_are_for_the_screen_again_when_the_filter_is_given_up(console, served):
    async with console(served) as terminal:
        await terminal.press("2")
        await terminal.answered()
        await terminal.press_at_once("/", "s", "escape", "1")
        await terminal.until_shown("[1 Overview]")


async def test_it_is_escape_and_the_key_when_the_terminal_makes_one_key_of_both(console, served):
    async with console(served) as terminal:
        await open_tenant(terminal)
        terminal.app.post_message(events.Key("alt+5", "5"))
        await terminal.until_shown("[5 Decisions]")
        await terminal.press("2")
        await terminal.answered()
        assert "Tenant chat" not in terminal.text


async def test_the_filter_is_replaced_when_another_is_typed_right_behind_the_slash(console, served):
    async with console(served) as terminal:
        await terminal.press("2")
        await terminal.answered()
        await terminal.press_at_once("/", *"chat", "enter", "/", *"batch", "enter")
        await terminal.until(lambda: boxes(terminal) == ["batch"])


async def test_the_targets_are_set_when_all_keys_of_an_edit_come_at_once(console, served):
    async with console(served) as terminal:
        await terminal.press("2")
        await terminal.answered()
        await terminal.press_at_once("/", *"chat", "enter", "enter", "e", "2", "5", "enter", "y")
        await terminal.until_shown("version 4 of chat's targets is set")
    assert puts(served) == [25]


async def test_an_action_is_done_when_its_name_is_typed_right_behind_its_key(console, served):
    text = "restart: 5 in flight finish"
    served.answer(
        "POST", "/engine/restart", {"action": "restart", "changed": True, "state": "x", "text": text}, 202
    )
    async with console(served) as terminal:
        await terminal.press_at_once("6", "x", *"llama-8b", "enter")
        await terminal.until_shown(text)


async def test_a_request_is_found_when_its_id_is_pasted_behind_the_key(console, served):
    async with console(served) as terminal:
        await terminal.press("5")
        await terminal.press_at_once("i")
        await terminal.paste(f"{7:032x}\n", "enter")
        await terminal.until_shown("prefill began")


async def test_the_slider_moves_from_the_target_in_force_when_its_screen_is_only_opening(console, served):
    async with console(served) as terminal:
        await terminal.press_at_once("3", "left", "left", "left")
        await terminal.until_shown("TBT target 37 ms")


async def test_the_screen_goes_on_and_keys_wait_when_the_targets_are_slow_to_come(console, served):
    async with console(served) as terminal:
        await open_tenant(terminal)
        served.slow[SLO] = asyncio.Event()
        await terminal.press_at_once("e", "2", "5")
        await until_painted(terminal)
        assert "Tenant chat" in terminal.text
        served.slow[SLO].set()
        await terminal.until_shown("of 25 ms")


async def test_what_was_typed_for_an_edit_does_nothing_else_when_the_edit_does_not_open(console, served):
    async with console(served) as terminal:
        await open_tenant(terminal)
        served.slow[SLO] = asyncio.Event()
        await terminal.press_at_once("e", "1", "q")
        served.answer("GET", "/tenants/chat/slo", problem(500, "database", "the disk is full"))
        served.slow[SLO].set()
        await terminal.until_shown("the disk is full")
        assert "Tenant chat" in terminal.text


async def test_it_is_applied_once_and_the_screen_goes_on_when_the_daemon_is_slow_to_say_so(console, served):
    async with console(served) as terminal:
        await open_tenant(terminal)
        await terminal.press_at_once("e", "2", "5", "enter")
        await terminal.until_shown("y applies it")
        served.slow[SLO] = asyncio.Event()
        await terminal.press_at_once("y", "y")
        await terminal.until(lambda: puts(served))
        await until_painted(terminal)
        served.slow[SLO].set()
        await terminal.until_shown("version 4 of chat's targets is set")
    assert puts(served) == [25]


async def test_it_quits_at_once_when_the_key_that_always_quits_is_pressed(console, served):
    async with console(served) as terminal:
        await open_tenant(terminal)
        served.slow[SLO] = asyncio.Event()
        await terminal.press_at_once("e", "2", "ctrl+q")
        await terminal.until(lambda: terminal.app._exit)
