"""Who may call the admin address."""

from __future__ import annotations

import base64

import pytest
from fastapi import FastAPI
from stores import ADMIN_TOKEN, AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane

PATHS = ["/api/v1/tenants", "/api/v1/engine", "/api/v1/openapi.json", "/docs", "/nowhere", "/", "//metrics"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_call_is_refused_when_it_has_no_token(call: AdminCalls, path: str) -> None:
    answer = await call("GET", path, token=None)

    assert answer.status_code == 401
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"].endswith('realm="pdmuxd admin"')
    assert answer.json() == {
        "type": "urn:pdmuxd:problem:unauthorized",
        "title": "Unauthorized",
        "status": 401,
        "detail": "the admin token is missing; send it as: Authorization: Bearer TOKEN",
        "field": None,
    }


@pytest.mark.parametrize(
    "token",
    ["wrong", ADMIN_TOKEN + "x", ADMIN_TOKEN[:-1], ADMIN_TOKEN.upper(), f"{ADMIN_TOKEN} {ADMIN_TOKEN}"],
)
async def test_a_call_is_refused_when_its_token_is_another(call: AdminCalls, token: str) -> None:
    answer = await call("GET", "/api/v1/tenants", token=token)
    assert answer.status_code == 401
    assert answer.json()["detail"] == "this is not the admin token"
    assert token not in answer.text


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", ADMIN_TOKEN, f"Basic {ADMIN_TOKEN}", f"Digest {ADMIN_TOKEN}", "Basic ="],
)
async def test_a_call_is_refused_when_its_authorization_has_another_form(
    call: AdminCalls, value: str
) -> None:
    for path in ("/api/v1/tenants", "/docs"):
        answer = await call("GET", path, token=None, headers={"Authorization": value})
        assert answer.status_code == 401


async def test_the_scheme_may_be_in_any_case_when_the_token_is_right(call: AdminCalls) -> None:
    answer = await call(
        "GET", "/api/v1/tenants", token=None, headers={"Authorization": f"bEARER {ADMIN_TOKEN}"}
    )
    assert answer.status_code == 200


async def test_a_change_is_refused_when_it_has_no_token(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    assert (await call("POST", "/api/v1/tenants", token=None, json={"name": "chat"})).status_code == 401
    assert control_plane.list_tenants() == []


async def test_a_browser_may_read_the_documentation_when_its_user_gives_the_token(call: AdminCalls) -> None:
    basic = {"Authorization": "Basic " + base64.b64encode(f"me:{ADMIN_TOKEN}".encode()).decode()}
    wrong = {"Authorization": "Basic " + base64.b64encode(b"me:wrong").decode()}
    for path in ("/", "/docs", "/docs/swagger-ui.css", "/api/v1/openapi.json"):
        refused = await call("GET", path, token=None)
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        assert (await call("GET", path, token=None, headers=wrong)).status_code == 401
        assert (await call("GET", path, token=None, headers=basic)).status_code == 200
    # A browser would send it along with what another site makes it send.
    assert (await call("GET", "/api/v1/tenants", token=None, headers=basic)).status_code == 401


async def test_only_probes_are_open_when_the_daemon_adds_routes(control_plane: ControlPlane) -> None:
    def add(app: FastAPI) -> None:
        for path in ("/metrics", "/healthz", "/readyz", "/other"):
            app.add_api_route(path, lambda: "here")

    call = AdminCalls(control_plane, extra_routes=add)
    for path in ("/metrics", "/healthz", "/readyz"):
        assert (await call("GET", path, token=None)).json() == "here"
    assert (await call("GET", "/other", token=None)).status_code == 401
    assert (await call("GET", "/other")).json() == "here"


async def test_metrics_need_a_token_when_told_so(control_plane: ControlPlane) -> None:
    def add(app: FastAPI) -> None:
        for path in ("/metrics", "/healthz"):
            app.add_api_route(path, lambda: "here")

    call = AdminCalls(control_plane, extra_routes=add, metrics_need_token=True)
    assert (await call("GET", "/metrics", token=None)).status_code == 401
    assert (await call("GET", "/metrics")).json() == "here"
    assert (await call("GET", "/healthz", token=None)).json() == "here"


@pytest.mark.parametrize("method", ["OPTIONS", "GET"])
async def test_no_page_of_another_origin_is_allowed_when_it_asks(call: AdminCalls, method: str) -> None:
    headers = {"Origin": "https://chat.example.org", "Access-Control-Request-Method": "GET"}
    answer = await call(method, "/api/v1/tenants", headers=headers)
    assert not [name for name in answer.headers if name.startswith("access-control-")]
