"""The admin plane's door: whom it answers, how much it reads, and who guesses tokens."""

import asyncio

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from pdmuxd.daemon.httpd.admin_guard import PROBE_CONNECTIONS, AdminGuard
from pdmuxd.daemon.httpd.peers import AuthFailures


async def application(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    if scope["path"] == "/secret":
        await JSONResponse({"detail": "no"}, 401)(scope, receive, send)
    else:
        await PlainTextResponse(f"{len(body)}")(scope, receive, send)


def guarded(app=application, *, max_body_bytes=1000, max_connections=20, max_failures=2):
    return AdminGuard(
        app,
        allowed_hosts=["admin.example.org"],
        max_body_bytes=max_body_bytes,
        max_connections=max_connections,
        auth_failures=AuthFailures(max_failures, lambda: 0.0),
    )


def client(app):
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8081")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8081", 200),
        ("127.0.0.1:8081", 200),
        ("192.0.2.7", 200),
        ("[::1]:8081", 200),
        ("ADMIN.example.org.", 200),
        ("pdmuxd.localhost", 200),
        ("evil.example.org", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8081", 421),
        ("", 421),
        ("[", 421),
        (":8081", 421),
    ],
)
async def test_only_requests_that_mean_this_host_are_answered(host, status):
    async with client(guarded()) as http:
        answer = await http.get("/metrics", headers={"Host": host})
    assert answer.status_code == status
    if status == 421:
        assert "admin.allowed_hosts" in answer.json()["detail"]


@pytest.mark.parametrize("length", [1000, 1001])
@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_body_is_read_up_to_a_limit(length, is_declared):
    async def parts():
        for _ in range(length):
            yield b"x"

    async with client(guarded()) as http:
        answer = await http.post("/", content=b"x" * length if is_declared else parts())
    if length == 1000:
        assert answer.text == "1000"
    else:
        assert (answer.status_code, answer.json()["type"]) == (413, "urn:pdmuxd:problem:body-too-large")


async def test_wrong_tokens_are_throttled_once_there_are_many(capsys):
    app = guarded()
    async with client(app) as http:
        statuses = [(await http.get("/secret")).status_code for _ in range(4)]
        assert statuses == [401, 401, 429, 429]
        assert (await http.get("/")).status_code == 200
        assert (await http.get("/secret")).headers["retry-after"] == "60"
    written = "".join(capsys.readouterr())  # where to depends on whether a test has set logging up
    assert written.count("wrong or missing admin token") == 1


async def test_probes_are_answered_when_others_take_all_the_requests():
    release, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(scope, receive, send):
        if scope["path"] == "/slow":
            begun.release()
            await release.wait()
        await PlainTextResponse("ok")(scope, receive, send)

    async with client(guarded(slow, max_connections=PROBE_CONNECTIONS + 2)) as http:
        waiting = [asyncio.create_task(http.get("/slow")) for _ in range(2)]
        for _ in waiting:
            await begun.acquire()
        assert (await http.get("/api/v1/tenants")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        release.set()
        await asyncio.gather(*waiting)
        assert (await http.get("/api/v1/tenants")).status_code == 200


async def test_head_is_asked_as_get_unless_the_answer_has_no_end():
    asked = {}

    async def note(scope, receive, send):
        asked[scope["path"]] = scope["method"]
        await PlainTextResponse("")(scope, receive, send)

    async with client(guarded(note)) as http:
        for path in ("/healthz", "/api/v1/events"):
            await http.head(path)
    assert asked == {"/healthz": "GET", "/api/v1/events": "HEAD"}
