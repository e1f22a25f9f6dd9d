"""What was sent wrongly is said, by name, whatever way it is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from stores import AdminCalls

from pdmuxd.controlplane.services import ControlPlane

API = "/api/v1"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", ["", "/document", "/learned", "/changes", "/diff/1"])
async def test_an_id_is_refused_when_the_database_cannot_count_so_far(call: AdminCalls, path: str) -> None:
    answer = await call("GET", f"{API}/profiles/99999999999999999999{path}")
    assert (answer.status_code, answer.json()["field"]) == (422, "profile_id")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b'{"name": "\xff"}', b"{", b'"x"'])
async def test_a_body_is_refused_when_it_is_no_json_object(call: AdminCalls, content: bytes) -> None:
    answer = await call("POST", f"{API}/tenants", content=content, headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:pdmuxd:problem:invalid-value"
    assert answer.json()["field"] is not None


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/tenants", "GET, POST"),
        ("/tenants/chat", "DELETE, GET, PATCH"),
        ("/profiles/rollback", "POST"),
        ("/keys/key_0", "DELETE, GET"),
    ],
)
async def test_every_method_of_a_path_is_named_when_another_is_asked(
    call: AdminCalls, path: str, allowed: str
) -> None:
    answer = await call("OPTIONS", API + path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.json()["detail"] == f"{API}{path} takes {allowed}, not OPTIONS"


async def test_a_whole_number_may_be_written_with_a_point(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    content = b'{"name": "chat", "max_in_flight": 703.0}'
    assert (await call("POST", f"{API}/tenants", content=content, headers=JSON)).status_code == 201
    assert control_plane.get_tenant("chat").max_in_flight == 703
    refused = await call("PATCH", f"{API}/tenants/chat", json={"max_in_flight": 703.5})
    assert refused.json()["detail"] == "max_in_flight is 703.5; allowed are 1 to 65536"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/tenants?limt=5", "limt"),
        ("/version?x=", "x"),
        ("/audit?limit=0", "limit"),
        ("/audit?before=a", "before"),
    ],
)
async def test_a_query_is_refused_when_it_is_unknown_or_outside_what_is_allowed(
    call: AdminCalls, path: str, field: Any
) -> None:
    answer = await call("GET", API + path)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert field in answer.json()["detail"]
