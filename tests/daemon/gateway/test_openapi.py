"""The data plane's OpenAPI document declares what the code sends, in the shape in which it is sent."""

from __future__ import annotations

import ast
import asyncio
import json
from pathlib import Path

import pytest
from declared import undeclared

from pdmuxd.daemon import gateway, httpd
from pdmuxd.daemon.gateway import openapi
from pdmuxd.daemon.gateway.contract.tables import TABLES
from pdmuxd.daemon.gateway.routes import ONE_MODEL, ROUTES, Kind

KEY = "pdm_alice"
DOCUMENT = json.loads(openapi.document())
REFUSALS = ("RequestError", "Refusal")


def statuses_in_code() -> set[int]:
    """Each status that is written in a refusal of the data plane's code."""
    folders = [Path(package.__file__).parent for package in (gateway, httpd)]
    calls = (
        node
        for folder in folders
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REFUSALS
    )
    words = (word.value for call in calls for word in call.keywords if word.arg == "status")
    return {word.value for word in words if isinstance(word, ast.Constant)}


def declared_of(route) -> set[int]:
    return {int(status) for status in DOCUMENT["paths"][route.path][route.method.lower()]["responses"]}


def test_every_status_is_declared_when_the_code_can_send_it():
    written = statuses_in_code()
    assert len(written) > 10
    ends_of_an_exchange = {502, 503, 504}
    declared = {
        int(status)
        for item in DOCUMENT["paths"].values()
        for operation in item.values()
        for status in operation["responses"]
    }
    assert declared - {200, 500} == written | ends_of_an_exchange


def test_every_route_is_in_the_document_with_its_fields_when_read():
    for route in (*ROUTES.values(), ONE_MODEL):
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        if route.kind in TABLES:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert set(schema["properties"]) == set(TABLES[route.kind])
            assert set(schema["required"]) <= set(schema["properties"])
    assert DOCUMENT["paths"]["/v1/responses/{id}"]["get"]["responses"].keys() >= {"501"}


def test_an_undeclared_status_is_told_when_there_is_one():
    assert undeclared(DOCUMENT, "POST", "/v1/completions", 200) is None
    assert undeclared(DOCUMENT, "POST", "/v1/completions", 418) is not None
    assert undeclared(DOCUMENT, "GET", "/v1/models/a-model", 418) is not None


def shape_of(status: int, route) -> list[str]:
    response = DOCUMENT["paths"][route.path][route.method.lower()]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    return [each["$ref"].rpartition("/")[2] for each in schema.get("anyOf", [schema])]


def kind_of(body: dict) -> str:
    assert body["error"].keys() >= {"type", "message", "param", "code"}
    return "AnthropicError" if body.get("type") == "error" else "OpenAIError"


@pytest.mark.parametrize("route", [*ROUTES.values(), ONE_MODEL], ids=lambda route: route.path)
async def test_a_refusal_has_the_shape_that_is_declared_when_it_is_sent(setup, route):
    url, auth = setup.url + route.path, {"Authorization": f"Bearer {KEY}"}
    answers = [await setup.client.request("PURGE", url)]
    if route.kind not in (Kind.HEALTH, Kind.LOAD_METRICS):
        answers.append(await setup.client.request(route.method, url))
        answers.append(await setup.client.request(route.method, url, headers={"Authorization": "Bearer no"}))
    if route.kind in TABLES:
        wrong = (b"{", b"[]", b'{"model": 5}', b"x" * 5000)
        answers += [await setup.client.post(url, data=data, headers=auth) for data in wrong]
        answers.append(await setup.client.post(url, data=b"{}", headers=auth | {"Content-Encoding": "br"}))
    statuses = {answer.status for answer in answers}
    assert statuses <= declared_of(route)
    assert {405} <= statuses
    if route.kind in TABLES:
        assert statuses >= {400, 401, 405, 413, 415}
    for answer in answers:
        assert kind_of(await answer.json()) in shape_of(answer.status, route)


SHAPES = [("/v1/messages", "AnthropicError"), ("/generate", "OpenAIError")]


@pytest.mark.parametrize(("path", "shape"), SHAPES)
async def test_a_refusal_has_the_shape_of_its_path_when_it_comes_before_the_application(setup, path, shape):
    host, _, port = setup.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST %s HTTP/1.1\r\nHost: a\r\nX-Long: %s\r\n\r\n" % (path.encode(), b"x" * 200_000))
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 431 ")
    assert kind_of(json.loads(body)) == shape


async def test_the_document_is_served_when_a_key_asks_for_it(setup):
    answer = await setup.client.get(setup.url + "/openapi.json", headers={"Authorization": f"Bearer {KEY}"})
    assert (answer.status, await answer.json()) == (200, DOCUMENT)
