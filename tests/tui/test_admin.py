"""Changes of tenants and keys by a line of words."""

from __future__ import annotations

import pytest
import scenes
from console_daemon import problem
from stores import AdminCalls, new_database, opened

from pdmuxd.tui.show.admin import FORMS, parse

pytestmark = pytest.mark.slow


async def test_a_key_is_issued_and_shown_once_when_it_is_confirmed(console, busy):
    busy.answer("POST", "/tenants/chat/keys", {"key_id": "k1", "secret": "pdm_the-secret"}, 201)
    async with console(busy) as terminal:
        await terminal.press("A", *"key issue chat", "enter")
        await terminal.until_shown("This will issue a key to chat, which is shown once.")
        assert not [path for method, path, _ in busy.calls if method == "POST"]
        await terminal.press("y")
        await terminal.until_shown("pdm_the-secret")
        assert "never shown again" in terminal.text
        await terminal.press("escape", "A")
        assert "pdm_the-secret" not in terminal.text


async def test_nothing_is_done_when_the_words_are_wrong_or_not_confirmed(console, busy):
    async with console(busy) as terminal:
        await terminal.press("A", *"delete everything", "enter")
        await terminal.until_shown("nothing was done")
        await terminal.press("home", "ctrl+k", *"disable chat", "enter")
        await terminal.until_shown("This will disable chat")
        await terminal.press("escape", "escape")
    assert {method for method, _, _ in busy.calls} <= {"GET"}


async def test_the_reason_is_sent_when_one_is_given(console, busy):
    busy.answer("PATCH", "/tenants/chat", {"name": "chat"})
    async with console(busy) as terminal:
        await terminal.press("A", *"disable chat because ticket 4711 of acme", "enter")
        await terminal.until_shown("The audit will say: ticket 4711 of acme")
        await terminal.press("y")
        await terminal.until_shown("+ Done: disable chat")
    assert ("PATCH", "/api/v1/tenants/chat", {"enabled": False}) in busy.calls
    assert busy.reasons == ["ticket 4711 of acme"]


async def test_what_the_daemon_allows_is_said_when_a_word_is_wrong(console, busy):
    said = "late_action is 'drop'; allowed are serve, refuse"
    busy.answer("PATCH", "/tenants/chat", problem(422, "invalid", said, "late_action"))
    async with console(busy) as terminal:
        await terminal.press("A", *"late chat drop", "enter")
        await terminal.until_shown("This will set what is done with requests of chat")
        await terminal.press("y")
        await terminal.until_shown(said)


async def test_nobody_is_asked_when_the_token_only_reads(console, busy):
    busy.hello = scenes.hello(role="reader")
    async with console(busy) as terminal:
        await terminal.press("A")
        assert "Change tenants" not in terminal.text
        (said,) = terminal.app._notifications
        assert said.message == "the read-only token may look and not change"


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        ("create new-one", ("POST", "/tenants", {"name": "new-one"})),
        ("limit chat 12", ("PATCH", "/tenants/chat", {"max_in_flight": 12})),
        (
            "limit chat tokens_per_day 5000",
            ("PATCH", "/tenants/chat/limits", {"tokens_per_day": {"value": 5000}}),
        ),
        (
            "limit chat requests_per_min 6 wait",
            ("PATCH", "/tenants/chat/limits", {"requests_per_min": {"value": 6, "action": "wait"}}),
        ),
        ("limit chat concurrency none", ("PATCH", "/tenants/chat/limits", {"concurrency": None})),
        (
            "key limit abc_1 requests_per_min 6",
            ("PATCH", "/keys/abc_1/limits", {"requests_per_min": {"value": 6}}),
        ),
        ("class chat interactive", ("PATCH", "/tenants/chat", {"priority_class": "interactive"})),
        ("weight chat 2.5", ("PATCH", "/tenants/chat", {"weight": 2.5})),
        ("wait chat 20000", ("PATCH", "/tenants/chat", {"max_wait_ms": 20000})),
        ("wait chat none", ("PATCH", "/tenants/chat", {"max_wait_ms": None})),
        ("late chat refuse", ("PATCH", "/tenants/chat", {"late_action": "refuse"})),
        ("cost chat 0.1", ("PATCH", "/tenants/chat", {"max_tbt_cost_ratio": 0.1})),
        ("cost chat 1", ("PATCH", "/tenants/chat", {"max_tbt_cost_ratio": 1.0})),
        ("cost chat none", ("PATCH", "/tenants/chat", {"max_tbt_cost_ratio": None})),
        ("enable chat", ("PATCH", "/tenants/chat", {"enabled": True})),
        ("key revoke abc_1", ("DELETE", "/keys/abc_1", None)),
        ("profile activate 7", ("POST", "/profiles/7/activate", {})),
        ("policy set muxwise", ("PUT", "/policy", {"policy": "muxwise"})),
        ("policy rollback", ("POST", "/policy/rollback", {})),
    ],
)
def test_words_become_a_call_when_they_are_of_a_form(typed, call):
    change = parse(typed)
    assert (change.method, change.path, change.body) == call


async def test_the_control_plane_takes_every_change_of_a_tenant_when_it_is_confirmed(tmp_path):
    with opened(new_database(tmp_path)) as control_plane:
        call = AdminCalls(control_plane)
        for typed in (
            "create acme",
            "limit acme 12",
            "limit acme tokens_per_day 5000",
            "limit acme requests_per_min 600 wait",
            "limit acme tokens_per_day none",
            "class acme interactive",
            "weight acme 2.5",
            "wait acme 20000",
            "wait acme none",
            "late acme refuse",
            "cost acme .25",
            "key issue acme",
            "disable acme",
        ):
            change = parse(typed)
            answer = await call(change.method, f"/api/v1{change.path}", json=change.body)
            assert answer.is_success, (typed, answer.text)
        kept = (await call("GET", "/api/v1/tenants/acme")).json()
    assert kept["limits"] == {"requests_per_min": {"value": 600, "action": "wait"}}
    assert (kept["priority_class"], kept["weight"], kept["max_wait_ms"]) == ("interactive", 2.5, None)
    assert kept["max_tbt_cost_ratio"] == 0.25
    assert (kept["late_action"], kept["max_in_flight"], kept["enabled"]) == ("refuse", 12, False)


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "create",
        "create ../x",
        "limit chat -1",
        "cost chat 1.5",
        "cost chat 2",
        "key revoke a/b",
        "disable a b",
    ],
)
def test_words_are_refused_when_they_are_of_no_form(typed):
    assert parse(typed) is None
    assert all(parse(form.usage.replace("NAME", "x y")) is None for form in FORMS if "NAME" in form.usage)
