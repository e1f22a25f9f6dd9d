"""The token that reads everything and changes nothing."""

from __future__ import annotations

import pytest
from stores import ADMIN_TOKEN, AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.credentials import digest

READER = "the-reader-token"
CHANGES = [
    ("POST", "/api/v1/tenants"),
    ("PATCH", "/api/v1/tenants/chat"),
    ("DELETE", "/api/v1/tenants/chat"),
    ("PUT", "/api/v1/tenants/chat/slo"),
    ("POST", "/api/v1/tenants/chat/keys"),
    ("DELETE", "/api/v1/keys/key_0"),
]


@pytest.fixture
def call(control_plane: ControlPlane) -> AdminCalls:
    control_plane.create_tenant("chat")
    return AdminCalls(control_plane, reader_token_sha256=lambda: digest(READER))


async def test_every_route_without_parameters_is_read_when_the_token_is_the_readers(call: AdminCalls) -> None:
    paths = [path for path, item in call.app.openapi()["paths"].items() if "get" in item and "{" not in path]
    assert "/api/v1/tenants" in paths
    for path in paths:
        if path != "/api/v1/events":  # without end
            answer = await call("GET", path, token=READER)
            assert answer.status_code in (200, 503), path  # 503: there is no daemon that learns


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_change_is_refused_with_its_reason_when_the_token_is_the_readers(
    call: AdminCalls, control_plane: ControlPlane, method: str, path: str
) -> None:
    before = control_plane.snapshot()

    answer = await call(method, path, token=READER, json={})

    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:pdmuxd:problem:read-only"
    assert answer.json()["detail"].endswith(f"{method} needs an admin token")
    assert control_plane.snapshot() == before


async def test_the_role_is_told_when_asked(call: AdminCalls) -> None:
    reader = (await call("GET", "/api/v1/whoami", token=READER)).json()
    admin = (await call("GET", "/api/v1/whoami", token=ADMIN_TOKEN)).json()
    assert (reader["role"], reader["may_change"], reader["kind"]) == ("reader", False, "reader-token")
    assert (admin["role"], admin["may_change"], admin["kind"]) == ("admin", True, "file-token")


async def test_the_readers_token_is_refused_when_there_is_none(control_plane: ControlPlane) -> None:
    answer = await AdminCalls(control_plane)("GET", "/api/v1/whoami", token=READER)
    assert answer.status_code == 401
