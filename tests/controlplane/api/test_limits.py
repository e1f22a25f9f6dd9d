from __future__ import annotations

import pytest
from stores import AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane

API = "/api/v1"
LIMITS = f"{API}/tenants/chat/limits"


async def test_limits_are_shown_when_they_were_set(call: AdminCalls, control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    empty = await call("GET", LIMITS)
    assert (empty.json()["limits"], empty.headers["ETag"]) == ([], '"1"')
    body = {"requests_per_min": {"value": 600, "action": "wait"}, "tokens_per_day": {"value": 5}}
    stale = await call("PATCH", LIMITS, json=body, headers={"If-Match": '"7"'})
    assert stale.status_code == 412
    after = await call("PATCH", LIMITS, json=body, headers={"If-Match": '"1"'})
    assert after.json() == {
        "tenant": "chat",
        "key_id": None,
        "max_in_flight": 256,
        "count_cached_tokens": False,
        "limits": [
            {"name": "requests_per_min", "of": "tenant", "value": 600, "action": "wait", "used": None},
            {"name": "tokens_per_day", "of": "tenant", "value": 5, "action": "refuse", "used": None},
        ],
        "version": 2,
    }
    assert (await call("GET", LIMITS)).json() == after.json()
    shown = (await call("GET", f"{API}/tenants/chat")).json()
    assert shown["limits"]["tokens_per_day"] == {"value": 5, "action": "refuse"}
    left = (await call("PATCH", LIMITS, json={"requests_per_min": None})).json()
    assert [one["name"] for one in left["limits"]] == ["tokens_per_day"]


async def test_those_of_its_tenant_are_shown_with_a_key(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    await call("PATCH", LIMITS, json={"concurrency": {"value": 9}})
    path = f"{API}/keys/{key.key_id}/limits"
    changed = await call("PATCH", path, json={"concurrency": {"value": 3}, "max_wait_ms": {"value": 100}})
    assert [(one["name"], one["of"], one["value"]) for one in changed.json()["limits"]] == [
        ("concurrency", "key", 3),
        ("max_wait_ms", "key", 100),
        ("concurrency", "tenant", 9),
    ]
    assert changed.headers["ETag"] == (await call("GET", f"{API}/keys/{key.key_id}")).headers["ETag"]


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"requests": {"value": 1}}, "requests", "is not a field here; allowed are concurrency, "),
        ({"concurrency": {"value": 0}}, "value", "value is 0; allowed are whole numbers above 0"),
        ({"concurrency": {"value": 70000}}, "concurrency", "is 70000; allowed are 1 to 65536"),
        ({"concurrency": {"value": 1.5}}, "value", "value is 1.5; allowed are"),
        ({"concurrency": {"value": 1, "action": "drop"}}, "action", "allowed are refuse and wait"),
        ({"concurrency": {}}, "value", "value is missing"),
        ({"concurrency": 5}, "concurrency", "must be a JSON object of value, action"),
        ({"max_wait_ms": {"value": 5}}, "max_wait_ms", "is a field of the tenant itself"),
    ],
)
async def test_the_field_is_named_when_a_limit_is_wrong(
    call: AdminCalls, control_plane: ControlPlane, body: dict[str, object], field: str, said: str
) -> None:
    control_plane.create_tenant("chat")
    refused = await call("PATCH", LIMITS, json=body)
    assert refused.status_code == 422
    assert field in refused.json()["field"]
    assert said in refused.json()["detail"]
    assert control_plane.get_tenant("chat").version == 1
