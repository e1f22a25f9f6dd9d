"""Admin tokens, the audit, and versions that must match, over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from profiling import measured_profile
from stores import SLO_BODY, AdminCalls

from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.controlplane.services.control_plane import ControlPlane

API = "/api/v1"


async def test_a_token_does_what_its_role_allows_until_it_is_revoked(
    control_plane: ControlPlane,
) -> None:
    used: list[Caller] = []
    call = AdminCalls(control_plane, used=used.append)
    issued = await call("POST", f"{API}/admin-tokens", json={"name": "deploy"})
    reader = await call("POST", f"{API}/admin-tokens", json={"name": "wall", "role": "reader"})
    assert (issued.status_code, issued.headers["Cache-Control"]) == (201, "no-store")
    secret = issued.json()["secret"]

    made = await call("POST", f"{API}/tenants", token=secret, json={"name": "chat"})
    assert made.status_code == 201
    refused = await call("POST", f"{API}/tenants", token=reader.json()["secret"], json={"name": "b"})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:pdmuxd:problem:read-only")
    assert [caller.name for caller in used] == ["deploy", "wall"]

    listed = await call("GET", f"{API}/admin-tokens")
    assert [token["name"] for token in listed.json()] == ["deploy", "wall"]
    assert secret not in listed.text
    assert (await call("DELETE", f"{API}/admin-tokens/deploy")).json()["revoked_at"] is not None
    assert (await call("GET", f"{API}/version", token=secret)).status_code == 401


async def test_the_audit_names_who_and_why_when_a_change_came_with_them(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    secret = control_plane.admin_tokens.issue("alice").secret
    why = {"X-Change-Reason": "größer, ticket 4711".encode()}
    await call("POST", f"{API}/tenants", token=secret, json={"name": "chat"}, headers=why)

    entry = (await call("GET", f"{API}/audit?tenant=chat")).json()["entries"][0]
    assert (entry["who_kind"], entry["who"], entry["why"]) == ("admin-token", "alice", "größer, ticket 4711")
    assert (entry["action"], entry["before"], entry["after"]["name"]) == ("tenant.create", None, "chat")
    assert entry["source"] == "127.0.0.1"
    assert control_plane.audit(action="admin-token.issue")[0].source is None, "no call has issued it"


async def test_the_audit_of_a_period_is_read_when_asked(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    at = control_plane.audit()[0].at
    for asked, found in (
        ({"since": at}, 1),
        ({"until": at}, 0),
        ({"since": at - timedelta(hours=1), "until": at + timedelta(hours=1)}, 1),
    ):
        answer = await call("GET", f"{API}/audit", params={k: v.isoformat() for k, v in asked.items()})
        assert len(answer.json()["entries"]) == found


@pytest.mark.parametrize("since", ["yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00Z"])
async def test_a_period_is_refused_when_it_is_none(call: AdminCalls, since: str) -> None:
    answer = await call("GET", f"{API}/audit", params={"since": since})
    assert (answer.status_code, answer.json()["field"]) == (422, "since")


async def test_tenants_and_keys_are_filtered_when_asked(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat-a", priority_class="interactive")
    control_plane.create_tenant("chat-b")
    control_plane.create_tenant("docs")
    control_plane.update_tenant("chat-b", enabled=False)

    async def names(query: str) -> list[str]:
        return [one["name"] for one in (await call("GET", f"{API}/tenants?{query}")).json()]

    assert await names("q=chat") == ["chat-a", "chat-b"]
    assert await names("q=%25") == await names("q=%00") == []
    assert await names("class=interactive") == ["chat-a"]
    assert await names("enabled=false") == ["chat-b"]
    assert await names("enabled=true&q=a") == ["chat-a"]
    answer = await call("GET", f"{API}/tenants?q=chat&limit=1")
    assert "q=chat" in answer.links["next"]["url"]
    assert (await call("GET", f"{API}/tenants?class=urgent")).status_code == 422

    good, bad = (control_plane.keys.issue("chat-a").key_id for _ in range(2))
    control_plane.keys.revoke(bad)
    for query, found in (("", {good, bad}), ("?revoked=true", {bad}), ("?revoked=false", {good})):
        listed = (await call("GET", f"{API}/tenants/chat-a/keys{query}")).json()
        assert {key["key_id"] for key in listed} == found


@pytest.mark.parametrize("why", [b"x" * 501, b"a\tb"])
async def test_a_reason_is_refused_when_it_could_not_be_shown(
    call: AdminCalls, control_plane: ControlPlane, why: bytes
) -> None:
    answer = await call("POST", f"{API}/tenants", json={"name": "chat"}, headers={"X-Change-Reason": why})
    assert (answer.status_code, answer.json()["field"]) == (422, "X-Change-Reason")
    assert control_plane.list_tenants() == []


async def test_the_audit_is_read_in_pages_when_asked(call: AdminCalls, control_plane: ControlPlane) -> None:
    for name in "abc":
        control_plane.create_tenant(name)
    first = (await call("GET", f"{API}/audit?limit=2")).json()
    rest = (await call("GET", f"{API}/audit?limit=2&before={first['next_before']}")).json()
    assert [entry["subject"] for entry in (*first["entries"], *rest["entries"])] == ["c", "b", "a"]
    assert rest["next_before"] is None


async def test_tenants_come_in_pages_when_there_are_many(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    for name in "abcde":
        control_plane.create_tenant(name)
    found: list[str] = []
    path: str | None = f"{API}/tenants?limit=2"
    while path is not None:
        answer = await call("GET", path)
        found += [tenant["name"] for tenant in answer.json()]
        path = answer.links.get("next", {}).get("url")
    assert found == list("abcde")


CHANGES: list[tuple[str, str, Any]] = [
    ("PATCH", "/tenants/chat", {"enabled": False}),
    ("PUT", "/tenants/chat/slo", SLO_BODY),
    ("DELETE", "/tenants/chat", None),
    ("POST", "/keys/KEY/rotate", {}),
    ("DELETE", "/keys/KEY", None),
    ("DELETE", "/admin-tokens/deploy", None),
    ("PUT", "/profiles/1/frozen", {"frozen": True}),
    ("DELETE", "/profiles/1/learned", None),
    ("DELETE", "/profiles/1/learned/1-2-3-4-5", None),
    ("POST", "/profiles/1/activate", {}),
    ("POST", "/profiles/deactivate", None),
    ("POST", "/profiles/rollback", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=lambda value: str(value)[:30])
async def test_a_change_is_refused_when_its_version_is_another(
    call: AdminCalls, control_plane: ControlPlane, method: str, path: str, body: Any
) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    control_plane.admin_tokens.issue("deploy")
    profile = control_plane.profiles.add(measured_profile(), origin="measured")
    control_plane.profiles.activate(profile.profile_id, None)
    path = API + path.replace("KEY", key.key_id)
    before = control_plane.snapshot()

    answer = await call(method, path, json=body, headers={"If-Match": '"999"'})

    assert answer.status_code == 412
    assert answer.json()["type"] == "urn:pdmuxd:problem:stale-version"
    assert control_plane.snapshot() == before
    source = path.replace("/rotate", "").replace("/frozen", "").split("/learned")[0]
    if "activate" in path or "rollback" in path:
        source = f"{API}/profiles/active"
    tag = (await call("GET", source)).headers["ETag"]
    assert (await call(method, path, json=body, headers={"If-Match": tag})).status_code != 412
