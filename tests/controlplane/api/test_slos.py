from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import SLO_BODY, AdminCalls, slo

from pdmuxd.controlplane.api.slos import TBT_RULE, SloIn, SloOut
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.slo_revisions import SloRevision

SLO = "/api/v1/tenants/chat/slo"


@pytest.fixture(autouse=True)
def _tenant(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat", slo(0.03))


async def test_the_targets_are_in_milliseconds_when_shown(call: AdminCalls) -> None:
    answer = await call("GET", SLO)
    assert answer.headers["ETag"] == '"1"'
    assert answer.json() == {
        **SLO_BODY,
        "tbt_ms": 30.0,
        "e2e_ms": None,
        "version": 1,
        "settings_version": 1,
        "in_force": False,
        "created_at": "2026-01-31T12:00:01Z",
    }


async def test_an_edit_is_stored_in_seconds_when_put(call: AdminCalls, control_plane: ControlPlane) -> None:
    answer = await call("PUT", SLO, json=SLO_BODY)
    assert (answer.status_code, answer.headers["ETag"]) == (200, '"2"')
    assert answer.json() == (await call("GET", SLO)).json() | {"outlook": None}
    assert control_plane.get_slo("chat").slo == slo(0.04)


async def test_a_target_of_whole_answers_is_set_kept_and_taken_away(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    answer = await call("PUT", SLO, json={**SLO_BODY, "e2e_ms": 20_000})
    assert (answer.status_code, answer.json()["e2e_ms"]) == (200, 20_000.0)
    assert control_plane.get_slo("chat").slo.e2e_s == 20.0
    kept = await call("PATCH", SLO, json={"tbt_ms": 35, "e2e_ms": None})
    assert (kept.json()["tbt_ms"], kept.json()["e2e_ms"]) == (35.0, 20_000.0)
    changed = await call("PATCH", SLO, json={"e2e_ms": 9_000})
    assert changed.json()["e2e_ms"] == 9_000.0
    assert (await call("GET", f"{SLO}/history")).json()[1]["e2e_ms"] == 20_000.0
    await call("PUT", SLO, json=SLO_BODY)
    assert control_plane.get_slo("chat").slo.e2e_s is None


@pytest.mark.parametrize("value", [0, -1, 86_400_001, "soon", True])
async def test_400_when_a_target_of_whole_answers_is_none(call: AdminCalls, value: object) -> None:
    answer = await call("PUT", SLO, json={**SLO_BODY, "e2e_ms": value})
    assert answer.status_code in (400, 422)
    assert "e2e_ms" in answer.text
    assert "1 to 86400000" in answer.text


@pytest.mark.parametrize("if_match", ['"1"', "1", "*", ' "1" '])
async def test_an_edit_is_accepted_when_it_matches(call: AdminCalls, if_match: str) -> None:
    answer = await call("PUT", SLO, json=SLO_BODY, headers={"If-Match": if_match})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)


@pytest.mark.parametrize("if_match", ['"2"', '"0"', "999999999999999999"])
async def test_an_edit_is_refused_when_it_is_stale(
    call: AdminCalls, control_plane: ControlPlane, if_match: str
) -> None:
    answer = await call("PUT", SLO, json=SLO_BODY, headers={"If-Match": if_match})
    assert answer.status_code == 412
    assert answer.json()["type"] == "urn:pdmuxd:problem:stale-version"
    assert "at version 1, not" in answer.json()["detail"]
    assert control_plane.get_slo("chat").version == 1


@pytest.mark.parametrize("if_match", ["x", 'W/"1"', '"1", "2"', "-1", "1" * 5000, ""])
async def test_the_header_is_named_when_it_is_no_version(call: AdminCalls, if_match: str) -> None:
    answer = await call("PUT", SLO, json=SLO_BODY, headers={"If-Match": if_match})
    assert (answer.status_code, answer.json()["field"]) == (422, "If-Match")
    assert len(answer.json()["detail"]) < 200


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("ttft_fixed_ms", 0.5, "ttft_fixed_ms is 0.5; allowed are 1 to 600000"),
        ("ttft_fixed_ms", 600001, "ttft_fixed_ms is 600001; allowed are 1 to 600000"),
        ("ttft_per_1k_new_tokens_ms", -1, "ttft_per_1k_new_tokens_ms is -1; allowed are 0 to 600000"),
        ("tbt_ms", 0.999, "tbt_ms is 0.999; allowed are 1 to 10000"),
        ("tbt_ms", "40", 'tbt_ms is "40"; allowed are 1 to 10000'),
        ("tbt_ms", True, "tbt_ms is true; allowed are 1 to 10000"),
        ("tbt_ms", None, "tbt_ms is null; allowed are 1 to 10000"),
        ("tbt_ms", 10**400, "allowed are 1 to 10000"),
        ("attainment_ratio", 99, "attainment_ratio is 99; allowed are 0.5 to 0.9999"),
        ("attainment_ratio", 1.0, "attainment_ratio is 1; allowed are 0.5 to 0.9999"),
    ],
)
async def test_a_target_is_refused_when_it_is_outside_what_is_allowed(
    call: AdminCalls, control_plane: ControlPlane, field: str, value: object, said: str
) -> None:
    answer = await call("PUT", SLO, json={**SLO_BODY, field: value})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert said in answer.json()["detail"]
    assert control_plane.get_slo("chat").version == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_a_target_is_refused_when_it_is_no_finite_number(call: AdminCalls, number: str) -> None:
    body = '{"ttft_fixed_ms":1,"ttft_per_1k_new_tokens_ms":1,"attainment_ratio":0.9,"tbt_ms":' + number + "}"
    answer = await call("PUT", SLO, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["field"]) == (422, "tbt_ms")


@pytest.mark.parametrize("field", list(SLO_BODY))
async def test_all_targets_must_be_given_when_put(call: AdminCalls, field: str) -> None:
    answer = await call("PUT", SLO, json={name: value for name, value in SLO_BODY.items() if name != field})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert f"{field} is missing; allowed are " in answer.json()["detail"]


async def test_every_wrong_field_is_named_when_there_are_several(call: AdminCalls) -> None:
    answer = await call("PUT", SLO, json={**SLO_BODY, "tbt_ms": 0, "attainment_ratio": 2})
    assert answer.json()["field"] == "tbt_ms"
    assert answer.json()["detail"] == (
        "tbt_ms is 0; allowed are 1 to 10000; attainment_ratio is 2; allowed are 0.5 to 0.9999"
    )


@given(
    fixed=st.integers(1_000, 600_000_000),
    per_1k=st.integers(0, 600_000_000),
    tbt=st.integers(1_000, 10_000_000),
    attainment=st.integers(5000, 9999),
)
def test_milliseconds_read_as_they_were_written_when_stored_as_seconds(
    fixed: int, per_1k: int, tbt: int, attainment: int
) -> None:
    """Down to the microsecond."""
    written = {
        "ttft_fixed_ms": fixed / 1000,
        "ttft_per_1k_new_tokens_ms": per_1k / 1000,
        "tbt_ms": tbt / 1000,
        "attainment_ratio": attainment / 10000,
    }
    stored = SloIn(**written).to_core()
    revision = SloRevision(tenant="a", version=1, slo=stored, settings_version=1, created_at="2026-01-31")
    read = SloOut.of(revision, in_force=False).model_dump(include=set(written))
    assert read == written


class TestInForce:
    async def test_an_edit_is_in_force_when_the_engine_has_confirmed_its_version(
        self, call: AdminCalls, control_plane: ControlPlane
    ) -> None:
        control_plane.create_tenant("other")
        assert (await call("PUT", SLO, json=SLO_BODY)).json()["settings_version"] == 3

        for state, acked, in_force in [
            ("serving", 2, False),
            ("serving", 3, True),
            ("serving", 4, True),
            ("draining", 3, True),
            ("starting", 0, False),
            ("down", 3, False),
        ]:
            call.status = replace(call.status, state=state, acked_version=acked)
            assert (await call("GET", SLO)).json()["in_force"] is in_force, (state, acked)
            assert (await call("GET", "/api/v1/tenants/chat")).json()["slo"]["in_force"] is in_force

    async def test_the_older_edit_is_in_force_when_the_newer_is_not_confirmed(
        self, call: AdminCalls, control_plane: ControlPlane
    ) -> None:
        for tbt_s in (0.02, 0.01):
            control_plane.set_slo("chat", slo(tbt_s))
        for acked, in_force in [(0, []), (1, [1]), (2, [2]), (3, [3]), (9, [3])]:
            call.status = replace(call.status, state="serving", acked_version=acked)
            history = (await call("GET", f"{SLO}/history")).json()
            assert [one["version"] for one in history] == [3, 2, 1]
            assert [one["version"] for one in history if one["in_force"]] == in_force


async def test_the_history_is_cut_when_a_limit_is_given(call: AdminCalls) -> None:
    await call("PUT", SLO, json=SLO_BODY)
    assert [one["version"] for one in (await call("GET", f"{SLO}/history?limit=1")).json()] == [2]
    for limit in ("0", "1001", "x"):
        answer = await call("GET", f"{SLO}/history?limit={limit}")
        assert (answer.status_code, answer.json()["field"]) == (422, "limit")


@pytest.mark.parametrize("path", ["slo", "slo/history"])
async def test_it_is_not_found_when_there_is_no_such_tenant(call: AdminCalls, path: str) -> None:
    assert (await call("GET", f"/api/v1/tenants/nobody/{path}")).status_code == 404
    assert (await call("PUT", "/api/v1/tenants/nobody/slo", json=SLO_BODY)).status_code == 404


async def test_the_conflict_rule_is_told_when_openapi_is_read(call: AdminCalls) -> None:
    schemas = (await call("GET", "/api/v1/openapi.json")).json()["components"]["schemas"]
    assert TBT_RULE in schemas["SloIn"]["properties"]["tbt_ms"]["description"]
