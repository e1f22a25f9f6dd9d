"""Who may open a console in a browser, and from where."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import CookieJar, web
from aiohttp.test_utils import TestClient, TestServer

from pdmuxd.daemon.web import server
from pdmuxd.daemon.web.server import WebConsole, is_loopback
from pdmuxd.daemon.web.sessions import LASTS_S, MOST, Sessions

TOKEN = "the-admin-token"
TENANTS_KEY = "pdm_key"
ANSWERS = {f"Bearer {TOKEN}": 200, f"Bearer {TENANTS_KEY}": 403}


async def _engine(request: web.Request) -> web.Response:
    return web.Response(status=ANSWERS.get(request.headers.get("Authorization", ""), 401))


@pytest.fixture
async def browser() -> AsyncIterator[TestClient]:
    daemon = web.Application()
    daemon.add_routes([web.get("/api/v1/engine", _engine)])
    async with TestServer(daemon) as there:
        console = WebConsole(str(there.make_url("")).rstrip("/"), port=8082)
        # The library's own jar keeps no cookie of an IP address.
        async with TestClient(TestServer(console.app()), cookie_jar=CookieJar(unsafe=True)) as client:
            yield client


async def log_in(browser: TestClient, token: str) -> tuple[int, str]:
    answer = await browser.post("/login", data={"token": token})
    return answer.status, await answer.text()


async def test_the_console_is_shown_when_the_daemon_knows_the_token(browser: TestClient) -> None:
    assert 'name="token"' in await (await browser.get("/")).text()
    status, page = await log_in(browser, f" {TOKEN}\n")
    assert (status, "data-session-websocket-url" in page) == (200, True)
    (cookie,) = browser.session.cookie_jar
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    assert TOKEN not in cookie.value
    assert TOKEN not in page


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        ("wrong", 401, "does not know this token"),
        ("", 401, "Type the token"),
        ("a\r\nHost: b", 401, "Type the token"),
        ("\N{PILE OF POO}", 401, "Type the token"),
        (TENANTS_KEY, 403, "needs an admin or the reader token"),
    ],
)
async def test_the_login_says_why_when_the_token_will_not_do(
    browser: TestClient, token: str, status: int, said: str
) -> None:
    got, page = await log_in(browser, token)
    assert (got, said in page) == (status, True)
    assert not list(browser.session.cookie_jar)


async def test_the_login_says_so_when_no_daemon_answers() -> None:
    async with TestClient(TestServer(WebConsole("http://127.0.0.1:9", port=1).app())) as browser:
        status, page = await log_in(browser, TOKEN)
        assert (status, "Is it running?" in page) == (502, True)


async def test_nothing_is_loaded_from_elsewhere_when_a_page_is_opened(browser: TestClient) -> None:
    pages = [await (await browser.get("/")).text(), (await log_in(browser, TOKEN))[1]]
    style = await (await browser.get("/assets/style.css")).text()
    loaded = re.findall(r'(?:src|href)="([^"]+)"|url\("([^"]+)"\)', "".join([*pages, style]))
    paths = {one or other for one, other in loaded} - {"data:,", "/"}
    assert {"/assets/console.js", "/static/js/textual.js"} <= paths
    for path in paths:
        assert path.startswith("/")
        assert (await browser.get(path)).status == 200


async def test_a_console_is_refused_when_nobody_has_logged_in(browser: TestClient) -> None:
    for path in ("/ws", "/download/x"):
        origin = str(browser.make_url("")).rstrip("/")
        assert (await browser.get(path, headers={"Origin": origin})).status == 401


async def test_a_request_is_refused_when_another_site_makes_it(browser: TestClient) -> None:
    await log_in(browser, TOKEN)
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {}):
        assert (await browser.get("/ws", headers=headers)).status == 403
    forged = await browser.post("/logout", headers={"Origin": "http://evil.example"})
    assert forged.status == 403
    rebound = await browser.get("/", headers={"Host": "evil.example:8082"})
    assert rebound.status == 421


async def test_another_console_is_refused_when_too_many_are_open(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log_in(browser, TOKEN)
    monkeypatch.setattr(server, "MOST_CONSOLES", 0)
    origin = str(browser.make_url("")).rstrip("/")
    answer = await browser.get("/ws", headers={"Origin": origin})
    assert (answer.status, await answer.text()) == (503, "0 consoles are open; close one")


async def test_the_login_is_asked_for_again_when_somebody_logs_out(browser: TestClient) -> None:
    await log_in(browser, TOKEN)
    assert 'name="token"' in await (await browser.post("/logout")).text()
    assert 'name="token"' in await (await browser.get("/")).text()


def test_a_session_ends_when_its_time_is_up_or_there_are_too_many() -> None:
    now_s = 0.0
    sessions = Sessions(now_s=lambda: now_s)
    first = sessions.open(TOKEN)
    assert sessions.token_of(first) == TOKEN
    now_s = LASTS_S
    assert sessions.token_of(first) is None
    opened = [sessions.open(TOKEN) for _ in range(MOST + 1)]
    assert sessions.token_of(opened[0]) is None
    assert sessions.token_of(opened[1]) == TOKEN


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("localhost", True),
        ("node.localhost", True),
        ("127.0.0.7", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_told_when_a_name_is_given(name: str, expected: bool) -> None:
    assert is_loopback(name) is expected
