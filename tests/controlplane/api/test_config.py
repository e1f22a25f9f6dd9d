"""All that operators set as one document."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from stores import SLO_BODY, AdminCalls, slo
from telemetry_feeds import loaded_telemetry, predicting

from pdmuxd.controlplane.services.consistency import check
from pdmuxd.controlplane.services.control_plane import ControlPlane

CONFIG = "/api/v1/config"
CHAT = {"tenants": {"chat": {"slo": SLO_BODY, "weight": 2.0, "limits": {"concurrency": {"value": 4}}}}}


PRICE = {"input": "0.15", "cached": "0.03", "output": "0.6"}


def tenants(count: int, **fields: Any) -> dict[str, Any]:
    return {"tenants": {f"t{number}": {"slo": SLO_BODY, **fields} for number in range(count)}}


async def put(call: AdminCalls, document: object, query: str = "", **options: Any) -> Any:
    answer = await call("PUT", f"{CONFIG}{query}", json=document, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["ETag"] == f'"{answer.json()["settings_version"]}"'
    return answer.json()


async def test_it_is_one_change_when_much_is_applied(
    call: AdminCalls, control_plane: ControlPlane, url: str
) -> None:
    control_plane.create_tenant("old", slo(0.1))
    control_plane.keys.issue("old")
    control_plane.create_tenant("chat", slo(0.1))
    heard: list[int] = []
    control_plane.subscribe(lambda snapshot: heard.append(snapshot.version))
    told = await put(call, CHAT | {"policy": {"policy": "muxwise"}}, "?prune=true")

    assert told["summary"] == "1 tenant changed, 1 tenant deleted, the policy changed"
    texts = [one["text"] for one in told["changes"]]
    assert (
        "change tenant chat: weight 1 -> 2, slo.tbt_ms 100 -> 40, limits.concurrency none -> 4 (refuse)"
        in texts
    )
    assert "delete tenant old, its history and its keys (1)" in texts
    assert "change the policy: policy none -> muxwise" in texts
    assert heard == [told["settings_version"]] == [4]
    assert control_plane.directory == control_plane.snapshot()
    assert control_plane.directory.keys == {}
    entry = control_plane.audit()[0]
    assert (entry.action, entry.settings_version) == ("config.apply", 4)
    assert entry.before is not None
    assert entry.after is not None
    assert entry.before["tenants"]["chat"]["weight"] == 1.0
    assert entry.after["tenants"]["chat"]["weight"] == 2.0
    assert "cache_group" not in entry.after["tenants"]["chat"], "only what differs"
    assert entry.after["tenants"]["old"] is None
    assert control_plane.audit(tenant="old")[0] == entry, "it is found by each tenant that it names"
    assert entry not in control_plane.audit(tenant="other")
    check(url)


async def test_nothing_is_written_when_it_is_put_again(call: AdminCalls, control_plane: ControlPlane) -> None:
    await put(call, CHAT)
    again = await put(call, CHAT)
    shown = await call("GET", CONFIG)
    back = await put(call, shown.json(), "?prune=true")
    for told in (again, back):
        assert (told["changed"], told["settings_version"], told["changes"]) == (False, 1, [])
    assert (shown.headers["ETag"], len(control_plane.audit())) == ('"1"', 1)


async def test_prices_are_in_the_same_change_when_they_are_applied(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    of_chat = PRICE | {"tenant": "chat", "output": "1.25"}
    document = CHAT | {"prices": {"currency": "EUR", "prices": [of_chat, PRICE]}}
    asked = await put(call, document, "?dry_run=true")
    assert asked["summary"] == "1 tenant created, the prices changed"
    assert control_plane.prices.current().prices == ()
    told = await put(call, document)
    assert told["changes"][1]["text"] == (
        "change the prices: currency none -> EUR, all tenants, all models none -> 0.15 / 0.03 / 0.6, "
        "chat, all models none -> 0.15 / 0.03 / 1.25"
    )
    held = control_plane.prices.current()
    assert (held.currency, [price.tenant for price in held.prices]) == ("EUR", ["", "chat"])
    assert held.version == told["settings_version"] == 1
    (entry,) = control_plane.audit()
    assert entry.after is not None
    assert [price["tenant"] for price in entry.after["prices"]["prices"]] == ["", "chat"]

    shown = (await call("GET", CONFIG)).json()
    assert (await put(call, shown, "?prune=true"))["changed"] is False
    without = await put(call, {"tenants": CHAT["tenants"]})
    assert without["changed"] is False, "what is not named stays"
    gone = await put(call, {"tenants": {"other": {}}, "prices": shown["prices"]}, "?prune=true")
    assert gone["summary"] == "1 tenant created, 1 tenant deleted"
    assert control_plane.prices.current() == held, "what a tenant that is gone has used is still billed"
    empty = await put(call, {"prices": {"prices": []}})
    assert empty["summary"] == "the prices changed"
    assert (await call("GET", CONFIG)).json()["prices"] == {"currency": None, "prices": []}


async def test_what_a_tenant_leaves_out_has_its_default_when_it_is_named(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    await put(call, CHAT)
    told = await put(call, {"tenants": {"chat": {"slo": SLO_BODY}}})
    assert {one["field"]: one["after"] for one in told["changes"][0]["fields"]} == {
        "weight": 1.0,
        "limits.concurrency": None,
    }
    assert control_plane.get_tenant("chat").limits == ()
    assert control_plane.get_slo("chat").version == 1, "targets that stay have no new version"


async def test_nothing_is_changed_when_it_is_only_asked(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    told = await put(call, CHAT, "?dry_run=true")
    assert (told["changed"], told["dry_run"], told["settings_version"]) == (True, True, 0)
    assert control_plane.list_tenants() == []


async def test_it_is_refused_when_something_else_was_changed(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("first")
    refused = await call("PUT", CONFIG, json=CHAT, headers={"If-Match": '"0"'})
    assert (refused.status_code, refused.json()["type"]) == (412, "urn:pdmuxd:problem:stale-version")
    await put(call, CHAT, headers={"If-Match": '"1"'})
    assert [one.name for one in control_plane.list_tenants()] == ["chat", "first"]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"tenants": {"chat": {"weight": "2"}}}, "tenants.chat.weight"),
        ({"tenants": {"chat": {"limits": {"max_wait_ms": {"value": 5}}}}}, "tenants.chat.limits.max_wait_ms"),
        ({"tenants": {"a b": {}}}, "tenants.a b"),
        ({"tenants": []}, "tenants"),
        ({"keys": {}}, "keys"),
        ({"prices": {"currency": "EUR", "prices": [PRICE, PRICE | {"input": "x"}]}}, "prices.prices.1.input"),
        (
            {"prices": {"currency": "EUR", "prices": [PRICE, PRICE | {"tenant": "t"}]}},
            "prices.prices.1.tenant",
        ),
        ({"prices": {"currency": "EUR", "prices": [PRICE, PRICE]}}, "prices.prices"),
        ({"prices": {"currency": None, "prices": [PRICE]}}, "prices.currency"),
        ({"prices": {"currency": "EUR"}}, "prices"),
        ({"policy": {"policy": "nothing"}}, "policy.policy"),
        ([], "body"),
    ],
)
async def test_the_field_is_named_when_it_is_wrong(
    call: AdminCalls, control_plane: ControlPlane, document: object, field: str
) -> None:
    refused = await call("PUT", CONFIG, json=document)
    assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert control_plane.audit() == []


async def test_faults_are_told_up_to_twenty_when_all_are_wrong(call: AdminCalls) -> None:
    refused = await call("PUT", CONFIG, json=tenants(1000, weight=-1))
    assert refused.json()["detail"].count("weight is -1; allowed are 0.01 to 100") == 20


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"tenants": NaN}'])
async def test_it_is_said_when_the_body_is_no_json(call: AdminCalls, content: bytes) -> None:
    refused = await call("PUT", CONFIG, content=content)
    assert (refused.status_code, refused.json()["field"]) == (422, "body")


async def test_the_outlook_is_of_all_tenants_when_targets_change(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat", slo(0.04))
    control_plane.create_tenant("search", slo(0.06))
    control_plane.create_tenant("silent", slo(0.06))
    known = loaded_telemetry(control_plane.directory)
    call = AdminCalls(control_plane, telemetry=known, predictors=predicting)

    def both(tbt_ms: float) -> dict[str, Any]:
        return {
            "tenants": {name: {"slo": SLO_BODY | {"tbt_ms": tbt_ms}} for name in ("chat", "search", "silent")}
        }

    told = await put(call, both(20), "?dry_run=true")
    outlook = told["outlook"]
    assert (outlook["verdict"], outlook["policy"], outlook["requests"]) == ("feasible", "muxwise", 80)
    assert [one["tenant"] for one in outlook["tenants"]] == ["chat", "search"], "by their traffic"
    alone = await call("POST", "/api/v1/tenants/chat/slo/preview", json=SLO_BODY | {"tbt_ms": 20})
    assert outlook["after"]["loads"] == alone.json()["after"]["loads"], "the strictest target is the same"
    refused = await call("PUT", CONFIG, json=both(1))
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:pdmuxd:problem:infeasible-target")
    assert refused.json()["field"] == "tenants.chat.slo.tbt_ms"
    assert "silent: tbt_ms 1 is infeasible" in refused.json()["detail"]
    assert control_plane.get_slo("chat").version == 1
    assert (await put(call, both(1), "?force=true"))["outlook"]["verdict"] == "infeasible"
    assert (await put(call, both(1) | {"policy": {"policy": "auto"}}))["outlook"] is None, "no target changes"


async def test_a_thousand_tenants_are_applied_within_five_seconds(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    # Of processor time: what others do on the machine meanwhile is not counted.
    begun_s = time.process_time()
    await put(call, tenants(1000))
    created_s = time.process_time() - begun_s
    begun_s = time.process_time()
    told = await put(call, tenants(1000, weight=2.0, limits={"tokens_per_day": {"value": 5}}))
    changed_s = time.process_time() - begun_s
    assert told["summary"] == "1000 tenants changed"
    assert max(created_s, changed_s) < 5.0, (created_s, changed_s)
    assert control_plane.directory == control_plane.snapshot()


async def test_it_is_made_once_more_when_others_change_things_meanwhile(
    call: AdminCalls, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply: Callable[..., Any] = control_plane.configs.apply
    came = iter(("first", "second"))

    def slow(*args: Any, **options: Any) -> Any:
        if (name := next(came, None)) is not None:
            control_plane.create_tenant(name)
        return apply(*args, **options)

    monkeypatch.setattr(control_plane.configs, "apply", slow)
    assert (await put(call, CHAT, "?prune=true"))["settings_version"] == 3
    assert [one.name for one in control_plane.list_tenants()] == ["chat"], "what came between is pruned too"


async def test_the_schema_is_that_of_the_document(call: AdminCalls) -> None:
    schema = (await call("GET", f"{CONFIG}/schema")).json()
    assert set(schema["properties"]) == {"tenants", "policy", "prices"}
    assert schema["$defs"]["ConfigTenantIn"]["additionalProperties"] is False
