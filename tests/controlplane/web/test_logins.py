"""A login with a browser: what its cookie opens, for how long, and for whom."""

from __future__ import annotations

import pytest
from browsers import Browser
from stores import ADMIN_TOKEN, AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.sessions import LASTS_S, MOST, Sessions


@pytest.fixture
def browser(call: AdminCalls) -> Browser:
    return Browser(call)


async def test_a_page_leads_to_the_login_and_back_when_the_browser_has_no_cookie(browser: Browser) -> None:
    asked = await browser.get("/ui/overview?window=2h")
    assert (asked.status_code, asked.headers["Location"]) == (
        303,
        "/ui/login?next=/ui/overview%3Fwindow%3D2h",
    )
    login = await browser.get(asked.headers["Location"])
    assert 'name="next" value="/ui/overview?window=2h"' in login.text
    back = await browser.log_in(next="/ui/overview?window=2h")
    assert (back.status_code, back.headers["Location"]) == (303, "/ui/overview?window=2h")
    assert (await browser.get("/ui/overview?window=2h")).status_code == 200


async def test_a_cookie_is_kept_from_scripts_and_other_sites_and_opens_pages_alone(browser: Browser) -> None:
    cookie = (await browser.log_in()).headers["set-cookie"]
    for said in ("HttpOnly", "SameSite=strict", "Path=/ui", f"Max-Age={int(LASTS_S)}"):
        assert said in cookie
    assert ADMIN_TOKEN not in cookie
    for path in ("/api/v1/tenants", "/docs", "/", "/metrics2", "/uix"):
        assert (await browser.get(path)).status_code == 401, path


@pytest.mark.parametrize("token", ["wrong", ADMIN_TOKEN + "x", "", "ä"])
async def test_a_login_is_refused_when_the_token_is_another(browser: Browser, token: str) -> None:
    answer = await browser.log_in(token)
    # The listener counts each 401, and answers too many of one address with 429.
    assert answer.status_code == (401 if token.strip() and token.isascii() else 422)
    assert "set-cookie" not in answer.headers
    assert token not in answer.text or not token
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/ui",
        "//evil.example/ui",
        "/\\evil.example",
        "/api/v1/tenants",
        "/ui/logout",
        "x" * 3000,
    ],
)
async def test_a_login_leads_to_a_page_of_ours_whatever_was_asked_for(browser: Browser, wanted: str) -> None:
    assert (await browser.log_in(next=wanted)).headers["Location"] == "/ui/overview"


async def test_a_form_of_another_site_is_refused(browser: Browser) -> None:
    login = await browser.post("/ui/login", {"token": ADMIN_TOKEN}, Origin="https://evil.example")
    assert login.status_code == 403
    await browser.log_in()
    token = await browser.form_token()
    for fields, headers in (
        ({}, {}),
        ({"form_token": "guessed"}, {}),
        ({"form_token": token}, {"Origin": "https://evil.example"}),
        ({"form_token": token}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        assert (await browser.post("/ui/logout", fields, **headers)).status_code == 403
    assert (await browser.get("/ui/overview")).status_code == 200
    assert (await browser.post("/ui/logout", {"form_token": token}, Origin="http://admin")).status_code == 303
    assert (await browser.get("/ui/overview")).status_code == 303


async def test_a_link_of_another_site_is_loaded_again_by_this_one(browser: Browser) -> None:
    """A browser sends no strict cookie with it, but with what the answer itself asks for."""
    asked = await browser.get("/ui/overview?at=2026-01-31T12:00:00Z", **{"Sec-Fetch-Site": "cross-site"})
    assert asked.status_code == 200
    assert asked.headers["Refresh"] == "0; url=/ui/overview?at=2026-01-31T12:00:00Z"


async def test_a_login_ends_when_its_token_is_revoked(browser: Browser, control_plane: ControlPlane) -> None:
    issued = control_plane.admin_tokens.issue("deploy", role="reader")
    await browser.log_in(issued.secret)
    page = await browser.get("/ui/overview")
    assert "deploy" in page.text
    assert "May look, not change." in page.text
    control_plane.admin_tokens.revoke("deploy")
    assert (await browser.get("/ui/overview")).status_code == 303


async def test_a_key_may_log_in_only_when_it_has_a_scope_to_look(
    browser: Browser, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    serving = control_plane.keys.issue("chat", scopes=["serve"])
    refused = await browser.log_in(serving.secret)
    assert refused.status_code == 403
    assert "scope read or admin" in refused.text
    reading = control_plane.keys.issue("chat", scopes=["read"])
    assert (await browser.log_in(reading.secret)).status_code == 303
    assert (await browser.get("/ui/overview")).status_code == 403


def test_a_session_ends_by_itself_and_the_oldest_when_there_are_too_many() -> None:
    now_s = 0.0
    sessions = Sessions(now_s=lambda: now_s)
    first, *_, last = [sessions.open("a token") for _ in range(MOST + 1)]
    assert sessions.find(first) is None
    assert sessions.find(last) is not None
    now_s = LASTS_S
    assert sessions.find(last) is None
    assert sessions.find(None) is None
