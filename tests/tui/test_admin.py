"""Changes of tenants and keys by a line of words."""

from __future__ import annotations

import pytest
import scenes

from pdmuxd.tui.show.admin import FORMS, parse


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


@pytest.mark.parametrize(
    "typed", ["", "create", "create ../x", "limit chat -1", "key revoke a/b", "disable a b"]
)
def test_words_are_refused_when_they_are_of_no_form(typed):
    assert parse(typed) is None
    assert all(parse(form.usage.replace("NAME", "x y")) is None for form in FORMS if "NAME" in form.usage)
