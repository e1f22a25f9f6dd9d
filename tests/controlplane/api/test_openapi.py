"""What the OpenAPI document promises."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from stores import AdminCalls

from pdmuxd.controlplane.api.field_meanings import FIELDS
from pdmuxd.controlplane.api.problems import PROBLEMS, add_problem_handlers
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core import errors

METHODS = {"get", "put", "post", "patch", "delete"}


@pytest.fixture
def document(call: AdminCalls) -> dict[str, Any]:
    return call.app.openapi()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS and path.startswith("/api/v1")
    }


def test_every_operation_says_what_it_does_and_what_can_go_wrong_when_read(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        assert operation["description"], name
        assert operation["security"] == [{"admin_token": []}], name
        assert {"401", "422"} <= set(operation["responses"]), name
        if "{" in name:
            assert "404" in operation["responses"], name
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (name, status)


def test_every_field_and_parameter_says_what_it_means_when_read(document: dict[str, Any]) -> None:
    fields = {
        f"{name}.{field}": value.get("description")
        for name, schema in document["components"]["schemas"].items()
        for field, value in schema.get("properties", {}).items()
    }
    parameters = {
        f"{name} {parameter['name']}": parameter.get("description")
        for name, operation in operations(document).items()
        for parameter in operation.get("parameters", ())
    }
    assert len(fields) > 700
    assert [name for name, text in (fields | parameters).items() if not text] == []


def test_every_meaning_is_of_a_field_that_exists_when_read(document: dict[str, Any]) -> None:
    named = {
        one
        for name, schema in document["components"]["schemas"].items()
        for field in schema.get("properties", {})
        for one in (field, f"{name.rpartition('__')[2]}.{field}")
    }
    assert set(FIELDS) - named == set()
    assert all(text.endswith(".") and not text[0].islower() for text in FIELDS.values())


@pytest.mark.parametrize(("ending", "unit"), [("_ms", "millisecond"), ("_s", "second"), ("_w", "watt")])
def test_a_meaning_tells_the_unit_that_its_name_has(ending: str, unit: str) -> None:
    assert [name for name, text in FIELDS.items() if name.endswith(ending) and unit not in text.lower()] == []


def test_a_generated_client_has_pleasant_names_when_read(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(set(names)) == len(names), "each is given once"
    assert {"list_tenants", "put_tenant", "change_slo", "put_config"} <= set(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+){0,4}", name) for name in names), names


def test_every_reference_leads_somewhere_when_read(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return found.union(*(references(child) for child in node.values()))
        return set().union(*(references(child) for child in node)) if isinstance(node, list) else set()

    wanted = references(document)
    assert wanted
    assert wanted == {f"#/components/schemas/{name}" for name in schemas}


def test_every_body_has_an_example_when_read(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        if name in ("EngineOut", "EngineStatsOut", "EngineInfoOut", "PartitionOut", "TbtOut"):
            continue
        in_fields = [field for field in schema["properties"].values() if "examples" in field]
        assert schema.get("examples") or in_fields, name


async def test_the_examples_are_accepted_when_sent(call: AdminCalls, document: dict[str, Any]) -> None:
    def example(name: str) -> Any:
        return document["components"]["schemas"][name]["examples"][0]

    assert (await call("POST", "/api/v1/tenants", json=example("TenantIn"))).status_code == 201
    assert (await call("PUT", "/api/v1/tenants/chat/slo", json=example("SloIn"))).status_code == 200
    assert (await call("POST", "/api/v1/tenants/chat/keys", json=example("KeyIn"))).status_code == 201
    assert (await call("PATCH", "/api/v1/tenants/chat", json=example("TenantPatch"))).status_code == 200
    shown = (await call("GET", "/api/v1/tenants/chat")).json()
    assert set(shown) == set(example("TenantOut"))
    assert set(shown["slo"]) == set(example("SloOut"))


def test_every_error_of_ours_has_an_answer_when_raised() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.PdmuxdError):
            fitting = [status for base, status, _ in PROBLEMS if issubclass(kind, base)]
            assert 400 <= fitting[0] < 600


def test_no_row_of_the_table_is_dead_when_read_in_order() -> None:
    for index, (kind, _, _) in enumerate(PROBLEMS):
        assert not any(issubclass(kind, earlier) for earlier, _, _ in PROBLEMS[:index])


async def test_nothing_of_a_defect_is_told_when_a_route_fails(control_plane: ControlPlane) -> None:
    def add(app: FastAPI) -> None:
        def fail() -> None:
            raise RuntimeError("a detail of the inside")

        app.add_api_route("/fails", fail)

    answer = await AdminCalls(control_plane, extra_routes=add)("GET", "/fails")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "inside" not in answer.text


async def test_a_store_that_fails_is_a_503_when_asked() -> None:
    app = FastAPI()
    add_problem_handlers(app)

    def fail() -> None:
        raise errors.StoreError("the database is locked")

    app.add_api_route("/fails", fail)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin") as client:
        answer = await client.get("/fails")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the database is locked")
