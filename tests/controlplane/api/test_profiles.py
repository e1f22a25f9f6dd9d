"""Profiles over REST."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs
from profiling import greeting_of, measured_profile
from stores import AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.profiling.document import from_json, to_json


@pytest.fixture
def profile_id(control_plane: ControlPlane) -> int:
    return control_plane.profiles.add(measured_profile(), origin="measured").profile_id


async def test_a_profile_is_the_same_when_exported_and_imported(call: AdminCalls, profile_id: int) -> None:
    exported = (await call("GET", f"/api/v1/profiles/{profile_id}/document")).json()
    answer = await call("POST", "/api/v1/profiles", json=exported)
    assert answer.status_code == 201
    assert (answer.json()["version"], answer.json()["origin"]) == (2, "imported")
    again = (await call("GET", f"{answer.headers['Location']}/document")).json()
    assert again == exported == json.loads(to_json(measured_profile()))
    assert from_json(json.dumps(again), "x") == measured_profile()


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"format": "other/9"}, "format is 'other/9'; this version reads pdmuxd-profile/3"),
        ({"total_sms": "many"}, "Expected `int`, got `str` - at `$.total_sms`"),
        ({"device": {}}, "missing required field"),
    ],
)
async def test_a_document_is_refused_with_its_field_when_it_is_wrong(
    call: AdminCalls, change: dict[str, object], detail: str
) -> None:
    document = json.loads(to_json(measured_profile())) | change
    answer = await call("POST", "/api/v1/profiles", json=document)
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]


@pytest.mark.parametrize(
    ("part", "change", "detail"),
    [
        (
            "prefill",
            {"per_new_s": -1e-6},
            "prefill.per_new_s on 132 SMs is -1e-06; allowed are numbers from 0",
        ),
        ("decode", {"fixed_s": -0.5}, "decode.fixed_s on 132 SMs is -0.5"),
        (
            "prefill",
            {"colocated_ratio": 0.5},
            "prefill.colocated_ratio on 132 SMs is 0.5; allowed are numbers from 1",
        ),
        ("prefill", {"colocated_ratio": -2.0}, "prefill.colocated_ratio on 132 SMs is -2"),
    ],
)
async def test_a_document_is_refused_with_its_coefficient_when_no_fit_can_be_so(
    call: AdminCalls, part: str, change: dict[str, float], detail: str
) -> None:
    document = json.loads(to_json(measured_profile()))
    next(fit for fit in document["solo_run"] if fit["sms"] == 132)[part] |= change
    answer = await call("POST", "/api/v1/profiles", json=document)
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]


async def test_the_difference_is_told_when_another_engine_runs(
    call: AdminCalls, profile_id: int, control_plane: ControlPlane
) -> None:
    call.status = replace(call.status, state="serving", hello=greeting_of("h100-qwen3-8b"))
    answer = await call("POST", f"/api/v1/profiles/{profile_id}/activate", json={})
    assert answer.status_code == 409
    assert "NVIDIA H100" in answer.json()["detail"]
    call.status = replace(call.status, hello=greeting_of())
    answer = await call("POST", f"/api/v1/profiles/{profile_id}/activate", json={"force": False})
    assert answer.json()["profile"]["id"] == profile_id
    assert (await call("GET", "/api/v1/profiles")).json()[0]["active"] is True


async def test_what_the_engine_predicts_with_is_told_when_no_profile_is_active(call: AdminCalls) -> None:
    active = (await call("GET", "/api/v1/profiles/active")).json()
    assert (active["profile"], active["predicts_with"]) == (None, "nothing: no engine runs")
    call.status = replace(call.status, state="serving", hello=greeting_of())
    active = (await call("GET", "/api/v1/profiles/active")).json()
    assert active["predicts_with"].startswith("not known yet")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("GET", "9", None, 404, "there is no profile 9"),
        ("POST", "9/activate", {}, 404, "there is no profile 9"),
        ("POST", "1/activate", {"force": "yes"}, 422, "allowed are true or false"),
        ("PUT", "1/frozen", {}, 422, "frozen is missing"),
        ("DELETE", "1/learned/abc", None, 422, "cell is 'abc'"),
        ("DELETE", "1/learned/1-2-3-4-5", None, 404, "nothing was learned"),
        ("POST", "rollback", {}, 404, "none to go back to"),
        ("GET", "1/diff/9", None, 404, "there is no profile 9"),
    ],
)
async def test_a_call_is_refused_with_its_reason_when_it_asks_wrongly(
    call: AdminCalls,
    profile_id: int,
    method: str,
    path: str,
    body: dict[str, object] | None,
    status: int,
    word: str,
) -> None:
    answer = await call(method, f"/api/v1/profiles/{path}", json=body)
    assert answer.status_code == status
    assert word in answer.json()["detail"]


async def test_only_what_differs_is_listed_when_two_profiles_are_compared(
    call: AdminCalls, profile_id: int, control_plane: ControlPlane
) -> None:
    other = control_plane.profiles.add(measured_profile(p90=0.03), origin="measured").profile_id
    found = (await call("GET", f"/api/v1/profiles/{profile_id}/diff/{other}")).json()
    assert {one["quantity"] for one in found} == {
        "p90 error of prefill on 132 SMs",
        "p90 error of decode on 132 SMs",
    }
    assert {(one["before"], one["after"]) for one in found} == {(2.0, 3.0)}
    assert (await call("GET", f"/api/v1/profiles/{profile_id}/diff/{profile_id}")).json() == []


async def test_what_a_prefill_takes_beside_decode_is_compared_too(
    call: AdminCalls, profile_id: int, control_plane: ControlPlane
) -> None:
    plain = measured_profile()
    fits = tuple(
        structs.replace(fit, prefill=replace(fit.prefill, colocated_ratio=1.25)) if fit.prefill else fit
        for fit in plain.solo_run
    )
    other = control_plane.profiles.add(structs.replace(plain, solo_run=fits), origin="measured").profile_id
    found = (await call("GET", f"/api/v1/profiles/{profile_id}/diff/{other}")).json()
    assert {(one["unit"], one["before"], one["after"]) for one in found} == {("times alone", None, 1.25)}
    assert "prefill beside decode on 132 SMs" in {one["quantity"] for one in found}
