"""What was sent wrongly is said, by name, whatever way it is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from stores import AdminCalls

from pdmuxd.controlplane.api.access import PREFIX
from pdmuxd.controlplane.services.control_plane import ControlPlane

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
        ("/tenants/chat", "DELETE, GET, PATCH, PUT"),
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


async def test_a_profile_is_refused_when_it_holds_half_a_character(call: AdminCalls) -> None:
    answer = await call("POST", f"{API}/profiles", content=b'{"name": "\\ud800"}', headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (422, "body")


IDS = ("99999999999999999999", "-1", "%FF%FE", "%00", "a%2Fb", "x" * 5000, "١٢", "[" * 200)
VALUES = (*IDS, "", "1e400", "nan", "9999-12-31T23:59:59%2B14:00", "0000-00-00T00:00:00Z")
BODIES = (
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"minutes": 1e400}',
    b'{"version": 99999999999999999999999}',
    b'{"version": ' + b"9" * 5000 + b"}",
    b'{"name": "\\ud800", "policy": "\\ud800", "label": "\\u0000", "max_tbt_cost_ratio": NaN}',
    b'{"name": "\\u0000", "policy": "\\u0000", "partitions": [[1, 99999999999999999999]]}',
    b"null",
)


def operations(call: AdminCalls) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in call.app.openapi()["paths"].items():
        for method, operation in item.items():
            if path.startswith(PREFIX) and path != f"{PREFIX}/events":
                yield method.upper(), path, operation


def assert_is_told(answer: Any, operation: dict[str, Any], *asked: object) -> None:
    """No defect, in a form and with a status that the document names."""
    assert answer.status_code < 500 or answer.status_code == 503, (asked, answer.text[:500])
    assert str(answer.status_code) in operation["responses"], (asked, answer.text[:500])
    if answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json", asked
        assert set(answer.json()) == {"type", "title", "status", "detail", "field"}, asked


@pytest.mark.slow
async def test_every_path_and_query_is_told_of_when_it_is_no_value_at_all(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    for method, path, operation in operations(call):
        if "{" in path:
            for value in IDS:
                asked = re.sub(r"{\w+}", value, path)
                assert_is_told(await call(method, asked), operation, method, asked)
        plain = re.sub(r"{\w+}", "1", path.replace("{name}", "chat"))
        for parameter in operation.get("parameters", ()):
            if parameter["in"] != "query":
                continue
            for value in VALUES:
                asked = f"{plain}?{parameter['name']}={value}"
                assert_is_told(await call(method, asked), operation, method, asked)
    assert [one.name for one in control_plane.list_tenants()] == ["chat"]


@pytest.mark.slow
async def test_every_body_is_told_of_when_it_is_nothing_that_can_be_read(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    asked = 0
    for method, path, operation in operations(call):
        if "requestBody" not in operation:
            continue
        plain = re.sub(r"{\w+}", "1", path.replace("{name}", "chat"))
        for content in BODIES:
            answer = await call(method, plain, content=content, headers=JSON)
            assert_is_told(answer, operation, method, plain, content[:60])
            assert answer.status_code >= 400, (method, plain, content[:60])
            asked += 1
    assert asked > 100
