from __future__ import annotations

import pytest
from stores import AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane

KEYS = "/api/v1/tenants/chat/keys"


@pytest.fixture(autouse=True)
def _tenant(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")


async def test_the_secret_is_shown_once_when_a_key_is_issued(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    answer = await call("POST", KEYS, json={"label": "laptop"})

    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    issued = answer.json()
    assert control_plane.snapshot().authenticate(issued["secret"]).name == "chat"
    listed = await call("GET", KEYS)
    assert listed.json() == [{name: value for name, value in issued.items() if name != "secret"}]
    assert issued["secret"] not in listed.text


async def test_a_key_stays_listed_when_revoked(call: AdminCalls, control_plane: ControlPlane) -> None:
    issued = (await call("POST", KEYS, json={})).json()
    answer = await call("DELETE", f"/api/v1/keys/{issued['key_id']}")
    assert (answer.status_code, answer.json()["state"]) == (200, "revoked")
    assert (await call("DELETE", f"/api/v1/keys/{issued['key_id']}")).json() == answer.json()
    assert (await call("GET", KEYS)).json() == [answer.json()]
    assert control_plane.snapshot().keys == {}


@pytest.mark.parametrize("label", ["a\nb", "x" * 101, 5, None])
async def test_a_label_is_refused_when_it_is_outside_what_is_allowed(call: AdminCalls, label: object) -> None:
    answer = await call("POST", KEYS, json={"label": label})
    assert (answer.status_code, answer.json()["field"]) == (422, "label")
    assert "allowed are at most 100 printable characters" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/tenants/nobody/keys"),
        ("POST", "/api/v1/tenants/nobody/keys"),
        ("DELETE", "/api/v1/keys/key_0"),
        ("DELETE", "/api/v1/keys/%00%ff"),
    ],
)
async def test_it_is_not_found_when_there_is_no_such_tenant_or_key(
    call: AdminCalls, method: str, path: str
) -> None:
    answer = await call(method, path, **({"json": {}} if method == "POST" else {}))
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("there is no ")
