from __future__ import annotations

from typing import Any

import pytest
from stores import SLO_BODY, AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.tenant_fields import MODEL_ALIASES_ALLOWED

TENANTS = "/api/v1/tenants"


async def test_a_tenant_is_answered_whole_when_created(call: AdminCalls) -> None:
    answer = await call("POST", TENANTS, json={"name": "chat", "slo": SLO_BODY, "max_in_flight": 5})

    assert answer.status_code == 201
    assert answer.headers["Location"] == "/api/v1/tenants/chat"
    assert answer.json() == {
        "name": "chat",
        "enabled": True,
        "max_in_flight": 5,
        "cache_group": None,
        "priority_class": "standard",
        "weight": 1.0,
        "max_wait_ms": None,
        "max_tbt_cost_ratio": None,
        "late_action": "serve",
        "count_cached_tokens": False,
        "model_aliases": [],
        "limits": {},
        "slo": {
            **SLO_BODY,
            "e2e_ms": None,
            "version": 1,
            "settings_version": 1,
            "in_force": False,
            "created_at": "2026-01-31T12:00:01Z",
        },
        "created_at": "2026-01-31T12:00:01Z",
        "version": 1,
    }
    assert answer.headers["ETag"] == '"1"'
    assert (await call("GET", answer.headers["Location"])).json() == answer.json()
    assert (await call("GET", TENANTS)).json() == [answer.json()]


async def test_a_tenant_has_defaults_when_only_its_name_is_given(call: AdminCalls) -> None:
    body = (await call("POST", TENANTS, json={"name": "chat"})).json()
    assert (body["max_in_flight"], body["slo"]["tbt_ms"], body["slo"]["attainment_ratio"]) == (
        256,
        50.0,
        0.99,
    )


async def test_only_what_is_given_changes_when_patched(call: AdminCalls) -> None:
    before = (await call("POST", TENANTS, json={"name": "chat"})).json()
    after = (await call("PATCH", f"{TENANTS}/chat", json={"enabled": False})).json()
    assert after == {**before, "enabled": False, "version": 2}
    assert (await call("PATCH", f"{TENANTS}/chat", json={})).json() == after
    both = {"enabled": True, "max_in_flight": 1}
    assert (await call("PATCH", f"{TENANTS}/chat", json=both)).json() == {
        **before,
        **both,
        "version": 3,
    }


async def test_a_tenant_leaves_its_cache_group_when_null_is_patched(call: AdminCalls) -> None:
    made = await call("POST", TENANTS, json={"name": "chat", "cache_group": "mates"})
    assert made.json()["cache_group"] == "mates"
    patch = f"{TENANTS}/chat"
    assert (await call("PATCH", patch, json={"max_in_flight": 3})).json()["cache_group"] == "mates"
    assert (await call("PATCH", patch, json={"cache_group": None})).json()["cache_group"] is None
    refused = await call("PATCH", patch, json={"cache_group": "A/B"})
    assert (refused.status_code, refused.json()["field"]) == (422, "cache_group")


async def test_a_tenant_has_its_class_and_share_when_they_are_given(call: AdminCalls) -> None:
    share = {"priority_class": "batch", "weight": 2, "max_wait_ms": 9000, "late_action": "refuse"}
    made = (await call("POST", TENANTS, json={"name": "chat", **share})).json()
    assert {name: made[name] for name in share} == share
    patch = f"{TENANTS}/chat"
    stale = await call("PATCH", patch, json={"weight": 3}, headers={"If-Match": '"99"'})
    assert stale.status_code == 412
    assert (await call("PATCH", patch, json={"weight": 0.5})).json() == {**made, "weight": 0.5, "version": 2}
    # What cannot be null stays; what can be, is.
    nulls = await call("PATCH", patch, json=dict.fromkeys(share))
    assert nulls.json() == {**made, "weight": 0.5, "max_wait_ms": None, "version": 3}


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("priority_class", "urgent", "interactive, standard and batch"),
        ("priority_class", 1, "interactive, standard and batch"),
        ("weight", 0, "0.01 to 100"),
        ("weight", -1, "0.01 to 100"),
        ("weight", 1e308, "0.01 to 100"),
        ("weight", "2", "0.01 to 100"),
        ("weight", True, "0.01 to 100"),
        ("max_wait_ms", 0, "null, or 1 to 3600000"),
        ("max_wait_ms", 1.5, "null, or 1 to 3600000"),
        ("late_action", "drop", "serve and refuse"),
        ("model_aliases", "gpt-4o", MODEL_ALIASES_ALLOWED),
        ("model_aliases", [""], MODEL_ALIASES_ALLOWED),
        ("model_aliases", ["*"], MODEL_ALIASES_ALLOWED),
        ("model_aliases", ["a,b"], MODEL_ALIASES_ALLOWED),
        ("model_aliases", ["claude-*-x"], MODEL_ALIASES_ALLOWED),
        ("model_aliases", ["a" * 129], MODEL_ALIASES_ALLOWED),
        ("model_aliases", ["a"] * 17, MODEL_ALIASES_ALLOWED),
        ("max_tbt_cost_ratio", -0.1, "null, or 0 to 1"),
        ("max_tbt_cost_ratio", 1.01, "null, or 0 to 1"),
        ("max_tbt_cost_ratio", "0.5", "null, or 0 to 1"),
        ("max_tbt_cost_ratio", True, "null, or 0 to 1"),
    ],
)
async def test_a_class_or_share_is_refused_when_it_is_not_allowed(
    call: AdminCalls, control_plane: ControlPlane, field: str, value: object, allowed: str
) -> None:
    await call("POST", TENANTS, json={"name": "chat"})
    for method, path, more in (("POST", TENANTS, {"name": "b"}), ("PATCH", f"{TENANTS}/chat", {})):
        refused = await call(method, path, json={**more, field: value})
        assert (refused.status_code, refused.json()["field"]) == (422, field)
        assert refused.json()["detail"].endswith(f"; allowed are {allowed}")
    assert control_plane.get_tenant("chat").version == 1


async def test_what_a_tbt_target_may_cost_is_kept_and_can_be_removed(call: AdminCalls) -> None:
    made = (await call("POST", TENANTS, json={"name": "chat", "max_tbt_cost_ratio": 0.25})).json()
    assert made["max_tbt_cost_ratio"] == 0.25
    patch = f"{TENANTS}/chat"
    assert (await call("PATCH", patch, json={"weight": 2})).json()["max_tbt_cost_ratio"] == 0.25
    assert (await call("PATCH", patch, json={"max_tbt_cost_ratio": None})).json()[
        "max_tbt_cost_ratio"
    ] is None


async def test_a_tenant_is_gone_when_deleted(call: AdminCalls) -> None:
    await call("POST", TENANTS, json={"name": "chat"})
    answer = await call("DELETE", f"{TENANTS}/chat")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await call("GET", f"{TENANTS}/chat")).status_code == 404
    assert (await call("DELETE", f"{TENANTS}/chat")).status_code == 404


async def test_a_second_tenant_is_a_conflict_when_it_has_the_same_name(call: AdminCalls) -> None:
    await call("POST", TENANTS, json={"name": "chat"})
    answer = await call("POST", TENANTS, json={"name": "chat"})
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:pdmuxd:problem:conflict"


@pytest.mark.parametrize(
    ("body", "field", "detail"),
    [
        ({}, "name", "name is missing; allowed are 1 to 63 characters"),
        ({"name": "A"}, "name", 'name is "A"; allowed are 1 to 63 characters of a-z, 0-9 and -'),
        ({"name": "a\n"}, "name", 'name is "a\\n"; allowed are'),
        ({"name": "a" * 64}, "name", "name is "),
        ({"name": 7}, "name", "name is 7; allowed are"),
        ({"name": "a", "max_in_flight": 0}, "max_in_flight", "is 0; allowed are 1 to 65536"),
        ({"name": "a", "max_in_flight": 1.5}, "max_in_flight", "is 1.5; allowed are 1 to 65536"),
        ({"name": "a", "max_in_flight": True}, "max_in_flight", "is true; allowed are 1 to 65536"),
        (
            {"name": "a", "slo": {**SLO_BODY, "tbt_ms": 0}},
            "slo.tbt_ms",
            "tbt_ms is 0; allowed are 1 to 10000",
        ),
        (
            {"name": "a", "slo": {"tbt_ms": 4}},
            "slo.ttft_fixed_ms",
            "ttft_fixed_ms is missing; allowed are 1 to",
        ),
        ({"name": "a", "slo": 4}, "slo", "must be a JSON object of ttft_fixed_ms, ttft_per_1k"),
        ({"name": "a", "colour": 1}, "colour", '"colour" is not a field here; allowed are name, slo, max_'),
        ([], "body", "must be a JSON object of name, slo, max_in_flight"),
        (None, "body", ""),
    ],
)
async def test_a_body_is_refused_with_its_field_when_it_is_wrong(
    call: AdminCalls, control_plane: ControlPlane, body: Any, field: str, detail: str
) -> None:
    answer = await call("POST", TENANTS, json=body)

    assert answer.status_code == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["type"]) == (422, "urn:pdmuxd:problem:invalid-value")
    assert problem["field"] == field
    assert detail in problem["detail"]
    assert control_plane.snapshot().version == 0


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"{", "the body is not JSON"),
        (b"", ""),
        (b'{"name": "\\ud800"}', 'name is "\\ud800"'),
        (b'{"\\ud800": 1}', '"\\ud800" is not a field here'),
        (b"\xff\xfe", ""),
        (b'{"max_in_flight": 1' + b"0" * 5000 + b"}", ""),
        (b'{"name": ' + b"[" * 100_000, ""),
    ],
)
async def test_a_body_is_refused_when_it_is_no_proper_json(
    call: AdminCalls, content: bytes, detail: str
) -> None:
    answer = await call("POST", TENANTS, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert detail in answer.json()["detail"]


async def test_the_content_type_is_named_when_a_form_is_sent(call: AdminCalls) -> None:
    answer = await call("POST", TENANTS, data={"name": "chat"})
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("name", ["nobody", "A", "%ff%00", "..%2f..", "%E2%98%83"])
async def test_a_tenant_is_not_found_when_there_is_none(call: AdminCalls, method: str, name: str) -> None:
    options = {"json": {"enabled": True}} if method == "PATCH" else {}
    answer = await call(method, f"{TENANTS}/{name}", **options)
    assert answer.status_code in (404, 405)
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_problem_is_answered_when_the_method_is_wrong(call: AdminCalls) -> None:
    answer = await call("PUT", TENANTS, json={})
    assert (answer.status_code, answer.json()["title"]) == (405, "Method Not Allowed")
    assert "GET" in answer.headers["Allow"]


async def test_aliases_of_the_model_stay_when_others_are_not_given(call: AdminCalls) -> None:
    names = ["claude-*", "gpt-4o", "org/model:1.0@x"]
    made = (await call("POST", TENANTS, json={"name": "chat", "model_aliases": names})).json()
    assert made["model_aliases"] == names
    patch = f"{TENANTS}/chat"
    assert (await call("PATCH", patch, json={"weight": 2})).json()["model_aliases"] == names
    assert (await call("PATCH", patch, json={"model_aliases": ["gpt-*"]})).json()["model_aliases"] == [
        "gpt-*"
    ]
    assert (await call("PATCH", patch, json={"model_aliases": []})).json()["model_aliases"] == []
    entry = (await call("GET", "/api/v1/audit")).json()["entries"][0]
    assert (entry["before"]["model_aliases"], entry["after"]["model_aliases"]) == (["gpt-*"], [])
