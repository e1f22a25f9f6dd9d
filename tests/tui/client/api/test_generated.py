"""The client's methods and types are those of the OpenAPI document."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from generate_client import FOLDER, STREAM, formatted, generated, type_of
from stores import AdminCalls, new_database, opened

from pdmuxd.client import AsyncClient, Client
from pdmuxd.tui.client.api.async_operations import AsyncOperations

VERBS = (
    *("activate", "ask", "begin", "cancel", "change", "create", "deactivate", "delete", "diff", "drain"),
    *("export", "freeze", "get", "import", "issue", "learn", "list", "preview", "put", "release", "reload"),
    *("reset", "restart", "resume", "revoke", "roll_back", "rotate", "set", "start", "stream", "update"),
    "upgrade",
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with opened(new_database(tmp_path_factory.mktemp("database"))) as control_plane:
        return AdminCalls(control_plane).app.openapi()


def operation_ids(document: dict[str, Any]) -> list[str]:
    return [
        operation["operationId"]
        for path, item in document["paths"].items()
        if path.startswith("/api/v1")
        for operation in item.values()
    ]


def test_what_is_written_is_what_the_document_says(document: dict[str, Any]) -> None:
    for name, text in generated(document).items():
        assert (FOLDER / name).read_text() == formatted(text), f"{name} is old: make client"


def test_each_operation_is_a_verb_and_what_it_is_done_to(document: dict[str, Any]) -> None:
    names = operation_ids(document)
    assert len(set(names)) == len(names)
    pattern = re.compile(f"(?:{'|'.join(VERBS)})(?:_[a-z]+)+")
    assert [name for name in names if not pattern.fullmatch(name)] == []


def test_both_clients_have_every_operation_with_the_same_arguments(document: dict[str, Any]) -> None:
    more = [name for name in vars(AsyncOperations) if name.startswith("iter_") or name.endswith("_csv")]
    assert len(more) > 5
    for name in {*operation_ids(document), *more} - {STREAM}:
        sync, awaited = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert str(sync) == str(awaited).replace("AsyncIterator", "Iterator"), name
        assert getattr(Client, name).__doc__ == getattr(AsyncClient, name).__doc__
        assert inspect.iscoroutinefunction(getattr(AsyncClient, name)) != name.startswith("iter_")
        assert not inspect.iscoroutinefunction(getattr(Client, name))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"$ref": "#/components/schemas/SloOut"}, "SloOut"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int | None"),
        ({"anyOf": [{"type": "number"}, {"type": "number"}]}, "float"),
        ({"enum": ["met", "missed"]}, "Literal['met', 'missed']"),
        ({"const": "tenant"}, "Literal['tenant']"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"type": "object", "patternProperties": {"^a": {"type": "string"}}}, "dict[str, str]"),
        ({"type": "object", "additionalProperties": True}, "dict[str, Any]"),
        ({}, "Any"),
    ],
)
def test_a_schema_becomes_a_type(schema: dict[str, Any], kind: str) -> None:
    assert type_of(schema) == kind
