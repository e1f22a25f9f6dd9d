"""A tenant put as a whole, and some of its targets changed."""

from __future__ import annotations

from typing import Any

import pytest
from stores import SLO_BODY, AdminCalls, slo
from telemetry_feeds import loaded_telemetry, predicting

from pdmuxd.controlplane.services.consistency import check
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.slo import DEFAULT_SLO

CHAT = "/api/v1/tenants/chat"
BODY = {"slo": SLO_BODY, "weight": 2.0, "limits": {"concurrency": {"value": 4}}}


async def test_it_is_created_and_then_replaced_as_a_whole_when_it_is_put(
    call: AdminCalls, control_plane: ControlPlane, url: str
) -> None:
    created = await call("PUT", CHAT, json=BODY)
    assert (created.status_code, created.headers["Location"]) == (201, CHAT)
    assert (created.json()["slo"]["tbt_ms"], created.json()["limits"]["concurrency"]["value"]) == (40.0, 4)
    key = control_plane.keys.issue("chat")
    again = await call("PUT", CHAT, json=BODY)
    assert (again.status_code, again.json()["version"]) == (200, created.json()["version"])
    replaced = await call("PUT", CHAT, json={"enabled": False}, headers={"If-Match": again.headers["ETag"]})
    assert replaced.status_code == 200, replaced.text
    found = control_plane.get_tenant("chat")
    assert (found.enabled, found.weight, found.limits, found.slo) == (False, 1.0, (), DEFAULT_SLO)
    assert found.slo_version == 2
    assert control_plane.keys.get(key.key_id).tenant == "chat"
    assert control_plane.directory == control_plane.snapshot()
    actions = [entry.action for entry in control_plane.audit()]
    assert actions == ["slo.set", "tenant.update", "key.issue", "tenant.create"]
    check(url)


async def test_it_must_exist_when_a_version_is_expected(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    refused = await call("PUT", CHAT, json=BODY, headers={"If-Match": '"1"'})
    assert refused.status_code == 412
    control_plane.create_tenant("chat")
    refused = await call("PUT", CHAT, json=BODY, headers={"If-Match": '"7"'})
    assert refused.json()["detail"] == "tenant chat is at version 1, not 7; read it again"
    assert control_plane.get_tenant("chat").weight == 1.0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/v1/tenants/Chat", BODY, "name"),
        (CHAT, {"weight": "2"}, "weight"),
        (CHAT, {"name": "chat"}, "name"),
        (CHAT, {"limits": {"max_wait_ms": {"value": 5}}}, "max_wait_ms"),
        (CHAT, {"slo": {"tbt_ms": 5}}, "slo.ttft_fixed_ms"),
    ],
)
async def test_the_field_is_named_when_it_is_wrong(
    call: AdminCalls, control_plane: ControlPlane, path: str, body: Any, field: str
) -> None:
    refused = await call("PUT", path, json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert control_plane.audit() == []


async def test_the_other_targets_stay_when_some_are_changed(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    odd = slo(1 / 300)  # more digits than REST tells
    control_plane.create_tenant("chat", odd)
    changed = await call("PATCH", f"{CHAT}/slo", json={"attainment_ratio": 0.9, "tbt_ms": None})
    assert (changed.status_code, changed.json()["version"], changed.headers["ETag"]) == (200, 2, '"2"')
    found = control_plane.get_slo("chat").slo
    assert (found.tbt_s, found.ttft_fixed_s, found.attainment_ratio) == (odd.tbt_s, odd.ttft_fixed_s, 0.9)
    for nothing in ({}, {"attainment_ratio": 0.9}):
        assert (await call("PATCH", f"{CHAT}/slo", json=nothing)).json()["version"] == 2
    stale = await call("PATCH", f"{CHAT}/slo", json={"tbt_ms": 30}, headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    wrong = await call("PATCH", f"{CHAT}/slo", json={"tbt_ms": 0})
    assert wrong.json()["detail"] == "tbt_ms is 0; allowed are 1 to 10000"
    assert (await call("PATCH", "/api/v1/tenants/none/slo", json={"tbt_ms": 30})).status_code == 404


async def test_an_infeasible_target_is_refused_unless_forced(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat", slo(0.04))
    control_plane.create_tenant("search", slo(0.06))
    known = loaded_telemetry(control_plane.directory)
    call = AdminCalls(control_plane, telemetry=known, predictors=predicting)
    whole = {"slo": SLO_BODY | {"tbt_ms": 1}}
    for method, path, body in (("PUT", CHAT, whole), ("PATCH", f"{CHAT}/slo", {"tbt_ms": 1})):
        refused = await call(method, path, json=body)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:pdmuxd:problem:infeasible-target")
        assert control_plane.get_slo("chat").slo.tbt_s == 0.04
        assert (await call(method, f"{path}?force=true", json=body)).status_code == 200
        control_plane.set_slo("chat", slo(0.04))
