"""The policy, its splits and its shadow over REST."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stores import AdminCalls
from telemetry_feeds import HELLO, heartbeat, predicting

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.link.messages import ShadowCounts

PATH = "/api/v1/policy"
SPLITS = [{"prefill_sms": 112, "decode_sms": 20}, {"prefill_sms": 96, "decode_sms": 36}]


@pytest.fixture
def call(control_plane: ControlPlane) -> AdminCalls:
    return AdminCalls(control_plane, predictors=predicting)


async def test_the_engine_is_told_when_a_policy_is_set(call: AdminCalls, control_plane: ControlPlane) -> None:
    assert control_plane.directory.engine_settings("auto").policy == "auto"

    answer = await call("PUT", PATH, json={"policy": " duet ", "partitions": SPLITS[::-1], "shadow": "auto"})

    assert (answer.status_code, answer.headers["ETag"]) == (200, '"1"')
    told = control_plane.directory.engine_settings("auto")
    assert (told.policy, told.partitions, told.shadow) == ("duet", ((112, 20), (96, 36)), "auto")
    assert (answer.json()["partitions"], answer.json()["waits_for"]) == (SPLITS, "engine")
    assert control_plane.snapshot() == control_plane.directory, "a restart finds the same"
    entry = control_plane.audit(action="policy.set")[0]
    assert (entry.before, entry.after) == (
        {"version": 0, "policy": None, "partitions": None, "shadow": None},
        {"version": 1, "policy": "duet", "partitions": "112,20;96,36", "shadow": "auto"},
    )


async def test_the_same_again_changes_nothing(call: AdminCalls, control_plane: ControlPlane) -> None:
    for _ in range(2):
        assert (await call("PUT", PATH, json={"policy": "duet"})).json()["version"] == 1
    assert control_plane.directory.version == 1


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"policy": "nobody"}, "policy", "unknown policy 'nobody'; known are auto"),
        ({"policy": "static:100,31"}, "policy", "100,31 is not possible on 132 SMs; allowed are"),
        ({"shadow": "pla-spatial:4"}, "shadow", "a single engine cannot run it"),
        ({"policy": ""}, "policy", "policy"),
        ({"policy": "x" * 201}, "policy", "at most 200 characters"),
        ({"partitions": []}, "partitions", "1 to 24 splits"),
        ({"partitions": [{"prefill_sms": 100, "decode_sms": 31}]}, "partitions", "100,31 is not possible"),
        ({"partitions": [SPLITS[0]] * 25}, "partitions", "1 to 24 splits"),
        (
            {"partitions": [{"prefill_sms": 0, "decode_sms": 132}]},
            "partitions.0.prefill_sms",
            "prefill_sms is 0; allowed are",
        ),
        ({"policies": "auto"}, "policies", "not a field here"),
    ],
)
async def test_what_the_device_cannot_do_is_refused(
    call: AdminCalls, control_plane: ControlPlane, body: dict[str, object], field: str, said: str
) -> None:
    answer = await call("PUT", PATH, json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.json()
    assert said in answer.json()["detail"]
    assert control_plane.directory.version == 0


async def test_only_names_are_checked_when_no_engine_is_known(control_plane: ControlPlane) -> None:
    call = AdminCalls(control_plane)
    assert (await call("PUT", PATH, json={"policy": "static:100,31"})).status_code == 200
    assert (await call("PUT", PATH, json={"policy": "nobody"})).status_code == 422


async def test_an_edit_is_refused_when_it_is_stale(call: AdminCalls) -> None:
    for method, path in (("PUT", PATH), ("POST", f"{PATH}/rollback")):
        answer = await call(method, path, json={}, headers={"If-Match": '"7"'})
        assert answer.status_code == 412


async def test_an_earlier_version_is_set_again_when_rolled_back(call: AdminCalls) -> None:
    assert (await call("POST", f"{PATH}/rollback")).status_code == 404
    for policy in ("muxwise", "duet"):
        await call("PUT", PATH, json={"policy": policy})

    assert (await call("POST", f"{PATH}/rollback")).json()["policy"] == "muxwise"
    back = (await call("POST", f"{PATH}/rollback", json={"version": 0})).json()
    assert (back["version"], back["policy"]) == (4, None)
    assert (await call("POST", f"{PATH}/rollback", json={"version": 9})).status_code == 404
    history = (await call("GET", f"{PATH}/history?limit=3")).json()
    assert [(one["version"], one["policy"]) for one in history] == [(4, None), (3, "muxwise"), (2, "duet")]


async def test_it_says_what_it_waits_for(call: AdminCalls) -> None:
    await call("PUT", PATH, json={"policy": "muxwise", "shadow": "auto"})
    counts = ShadowCounts(
        policy="auto",
        decisions=200,
        same=150,
        other_mode=30,
        other_split=20,
        other_requests=0,
        late=2,
        shadow_late=0,
        prefill_sms=20_000,
        shadow_prefill_sms=22_000,
    )
    call.status = replace(call.status, state="serving", hello=HELLO, acked_version=1)
    call.status = replace(call.status, stats=heartbeat(policy="muxwise", shadow=counts))
    found = (await call("GET", PATH)).json()
    assert (found["in_force"], found["waits_for"], found["running"]) == (True, None, "muxwise")
    assert (found["shadow_report"]["same_ratio"], found["shadow_report"]["late_ratio"]) == (0.75, 0.01)
    assert found["shadow_report"]["shadow_prefill_sms_mean"] == 110

    call.status = replace(call.status, policy_difference="static needs SM split 96,36")
    found = (await call("GET", PATH)).json()
    assert (found["in_force"], found["waits_for"], found["why"]) == (
        False,
        "next_start",
        "static needs SM split 96,36",
    )
