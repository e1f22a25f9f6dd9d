"""Scripts of other pages: none unless an origin is allowed, and never on the admin plane."""

from __future__ import annotations

import httpx
import pytest
from pydantic import ValidationError

from pdmuxd.daemon.httpd.cors import with_cors
from pdmuxd.daemon.settings.planes import DataSection

PAGE = "https://chat.example.org"
ASKS = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,x-stainless-os",
}


async def app(scope, receive, send):
    headers = [(b"x-request-id", b"1")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


async def ask(origins, method, *, origin=PAGE, **headers):
    transport = httpx.ASGITransport(with_cors(app, origins))
    async with httpx.AsyncClient(transport=transport, base_url="http://data") as client:
        return await client.request(method, "/v1/models", headers={"Origin": origin, **headers})


async def test_a_preflight_is_answered_without_a_key_when_the_origin_is_allowed():
    answer = await ask(f"https://other.example.org, {PAGE}", "OPTIONS", **ASKS)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers


async def test_an_answer_may_be_read_when_the_origin_is_allowed():
    answer = await ask(PAGE, "GET")
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert (await ask("*", "GET")).headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("origins", ["", " , ", "https://other.example.org", PAGE + "x"])
async def test_no_page_may_read_an_answer_when_its_origin_is_not_allowed(origins):
    for method, headers in (("OPTIONS", ASKS), ("GET", {})):
        answer = await ask(origins, method, **headers)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "origins", ["chat.example.org", PAGE + "/", "ftp://a", "null", "https://*.a", "https://A b"]
)
def test_a_setting_is_refused_when_it_is_no_origin(origins):
    with pytest.raises(ValidationError, match="allowed are origins"):
        DataSection(cors_origins=origins)
