"""Writes the client's methods and types from the OpenAPI document, and the console's values: `make client`.

    python tests/support/generate_client.py

`tests/tui/client/api/test_generated.py` fails where what is written is not what the document says. What only
the event stream carries is not in the document: it is read from the messages themselves.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic.json_schema import models_json_schema

from pdmuxd.controlplane.events.messages import API_VERSION, EVENTS

FOLDER = Path(__file__).parents[2] / "tui" / "client" / "api"
READ_BY_CONSOLE = (
    *(
        "ActionOut",
        "AttainmentOut",
        "DecisionsOut",
        "DriftOut",
        "EffectsOut",
        "GuardOut",
        "HistoryOut",
        "LogOut",
    ),
    *("OutlookOut", "PartitionsOut", "PastAlarmsOut", "RequestOut", "RequestsOut", "TenantOut"),
    "WhatIfOut",
)
"""The answers that the console makes values of, beside the events; what stands in them follows."""
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEADERS = {"if-match": "if_match", "x-change-reason": "why", "idempotency-key": "idempotency_key"}
OPTIONS = {"if_match": "int | str", "why": "str", "idempotency_key": "str", "timeout_s": "float"}
STREAM = "stream_events"
BASES = {"GroupOut": "WorkOut", "RequestOut": "RequestEvent", "WorkOut": "UseOut"}
"""What has the fields of another and is shown like it."""
_MODELS = "models."
_CURSORS = {"after", "before"}
_PREFIX = "/api/v1"
_REFERENCE = "#/components/schemas/"
_MADE = "Made by `make client` from the OpenAPI document."

Json = Mapping[str, Any]


def generated(document: Json) -> dict[str, str]:
    """The text of each file, by its name, before it is formatted."""
    return {
        "models.py": "\n".join(_models(document["components"]["schemas"])),
        "async_operations.py": "\n".join(_operations(document)),
        "operations.py": "\n".join(_waiting(document)),
        "../wire.py": "\n".join(console_values(document["components"]["schemas"])),
    }


def formatted(text: str) -> str:
    """As ruff formats it."""
    command = [
        str(Path(sys.executable).parent / "ruff"),
        "format",
        "--stdin-filename",
        str(FOLDER / "x.py"),
        "-",
    ]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _models(schemas: Json) -> Iterator[str]:
    yield f'"""What is sent and answered, as JSON. {_MADE}\n\nWhat each field means is in the document."""\n'
    yield "from __future__ import annotations\n"
    yield "from typing import Any, Literal, NotRequired, TypedDict\n"
    for name in sorted(schemas):
        schema = schemas[name]
        is_input = not set(schema.get("required", ())) >= set(schema.get("properties", ()))
        fields = {
            field: _field(one, is_needed=not is_input or field in schema.get("required", ()))
            for field, one in schema.get("properties", {}).items()
        }
        if any(keyword.iskeyword(field) for field in fields):
            # These values are evaluated, and classes may be named before they are there.
            inside = ", ".join(f"{field!r}: {kind!r}" for field, kind in fields.items())
            yield f"\n{name} = TypedDict({name!r}, {{{inside}}})\n"
            yield f'"""{_sentence(schema)}"""\n'
            continue
        yield f"\nclass {name}(TypedDict):"
        yield _docstring(_sentence(schema), " " * 4) + "\n"
        yield from (f"    {field}: {kind}" for field, kind in fields.items())
        yield ""


def _events() -> Json:
    """The schemas of the events, and of what stands in them."""
    kinds = [(kind, "serialization") for kind in EVENTS.values()]
    _, found = models_json_schema(kinds, ref_template=_REFERENCE + "{model}")
    schemas: Json = found["$defs"]
    return schemas


def console_values(answers: Json | None = None) -> Iterator[str]:
    """What the console reads, as structs that take what an older or a newer daemon says; the events alone
    without `answers`, the schemas of the document.

    A number, a list or what may be null has a default: an older daemon may not send it. Words are texts: a
    newer daemon has some that this console does not know.
    """
    yield f'"""What the daemon says, as the console reads it. {_MADE}\n\nWhat each field means is there."""\n'
    yield "from __future__ import annotations\n"
    yield "from datetime import datetime\n"
    yield f"import msgspec\n\nAPI_VERSION = {API_VERSION}\n\n"
    schemas = {**_events(), **(answers or {})}
    wanted = [*(kind.__name__ for kind in EVENTS.values()), *(READ_BY_CONSOLE if answers else ())]
    lenient: set[str] = set()  # those that can be made of nothing
    for name in _inner_first(wanted, schemas):
        base = BASES.get(name)
        inherited = schemas[base]["properties"] if base else {}
        yield f"class {name}({base or 'msgspec.Struct'}, frozen=True, kw_only=True):"
        yield _docstring(_sentence(schemas[name]), " " * 4) + "\n"
        defaults = {field: _default(schema, lenient) for field, schema in schemas[name]["properties"].items()}
        if None not in defaults.values():
            lenient.add(name)
        for field, schema in schemas[name]["properties"].items():
            if field in inherited:
                continue
            default = defaults[field]
            if keyword.iskeyword(field):
                values = ", ".join([f"name={field!r}", *([f"default={default}"] if default else [])])
                default = f"msgspec.field({values})"
            yield f"    {_named(field)}: {_value(schema)}" + (f" = {default}" if default else "")
        yield "\n"
    yield "EVENTS = {"
    yield from (f"    {name!r}: {kind.__name__}," for name, kind in EVENTS.items())
    yield "}"
    yield f"Event = {' | '.join(kind.__name__ for kind in EVENTS.values())}"


def _inner_first(wanted: Iterable[str], schemas: Json) -> list[str]:
    """The schemas with all that stands in them, which comes before them."""
    found: list[str] = []
    for name in wanted:
        inside = re.findall(_REFERENCE + r"(\w+)", json.dumps(schemas[name]))
        bases = [BASES[name]] if name in BASES else []
        found += [one for one in (*_inner_first([*bases, *inside], schemas), name) if one not in found]
    return list(dict.fromkeys(found))


def _value(schema: Json) -> str:
    """The type of the value that is made of what a schema describes."""
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_value(one) for one in schema["anyOf"]))
    match schema.get("type"):
        case "string":
            return "datetime" if schema.get("format") == "date-time" else "str"
        case "array":
            return f"tuple[{_value(schema['items'])}, ...]"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"dict[str, {_value(schema['additionalProperties'])}]"
    return type_of(schema)


def _default(schema: Json, lenient: Container[str]) -> str | None:
    """What a field is where the daemon does not send it; None: it must."""
    default = schema.get("default")
    if default is not None and not isinstance(default, list | dict):
        return repr(default)
    if any(one.get("type") == "null" for one in schema.get("anyOf", ())):
        return "None"
    if "$ref" in schema:
        name = type_of(schema)
        return f"{name}()" if name in lenient else None
    return {"array": "()", "object": "{}", "integer": "0", "number": "0.0", "boolean": "False"}.get(
        schema.get("type", "")
    )


def _sentence(schema: Json) -> str:
    text = " ".join(schema.get("description", schema["title"]).split())
    first, dot, _ = text.partition(". ")
    return first + dot.strip()


def _field(schema: Json, *, is_needed: bool) -> str:
    kind = type_of(schema)
    return kind if is_needed else f"NotRequired[{kind}]"


def type_of(schema: Json, where: str = "") -> str:
    """The type that a schema describes; `where` stands before the names of models."""
    if "$ref" in schema:
        return where + schema["$ref"].removeprefix(_REFERENCE)
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(type_of(one, where) for one in schema[several]))
    kind = schema.get("type")
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}), where)}]"
    if kind == "object":
        values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        found = [type_of(one, where) for one in values if isinstance(one, dict)]
        return f"dict[str, {' | '.join(found) or 'Any'}]"
    return SCALARS.get(kind, "Any") if isinstance(kind, str) else "Any"


def _operations(document: Json) -> Iterator[str]:
    yield f'"""A method for each operation of the REST interface. {_MADE}"""\n'
    yield "from __future__ import annotations\n"
    yield "from abc import ABC, abstractmethod"
    yield "from collections.abc import AsyncIterator, Mapping"
    yield "from typing import TYPE_CHECKING, Any, Literal\n"
    yield "from pdmuxd.tui.client.api.calls import quoted\n"
    yield "if TYPE_CHECKING:\n    from pdmuxd.tui.client.api import models\n\n"
    yield "class AsyncOperations(ABC):"
    yield '    """Calls to `/api/v1`, by their operation ids."""\n'
    yield "    @abstractmethod"
    yield "    async def request(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401"
    yield '        """Call a path below `/api/v1`; the answer as JSON, or as text."""\n'
    yield "    @abstractmethod"
    yield "    def _pages("
    yield "        self, path: str, query: Mapping[str, object], items: str | None"
    yield '    ) -> AsyncIterator[Any]:\n        """Go through a list."""\n'
    for one in _each(document):
        yield from one.method()
        if one.is_csv:
            yield from one.method(form="csv")
        if one.is_paged:
            yield from one.iterator(document["components"]["schemas"])


def _waiting(document: Json) -> Iterator[str]:
    yield f'"""The same methods, which wait for their answers. {_MADE}"""\n'
    yield "from __future__ import annotations\n"
    yield "from pdmuxd.tui.client.api.async_operations import AsyncOperations"
    yield "from pdmuxd.tui.client.api.waiting import Waiting, listed, waited\n\n"
    yield "class Operations(Waiting):"
    yield '    """Calls to `/api/v1`, by their operation ids."""\n'
    for one in _each(document):
        yield f"    {one.name} = waited(AsyncOperations.{one.name})"
        if one.is_csv:
            yield f"    {one.name}_csv = waited(AsyncOperations.{one.name}_csv)"
        if one.is_paged:
            yield f"    {one.iterator_name} = listed(AsyncOperations.{one.iterator_name})"


def _each(document: Json) -> Iterator[_Operation]:
    for path, item in document["paths"].items():
        for method, described in item.items():
            if path.startswith(_PREFIX) and described["operationId"] != STREAM:
                yield _Operation(method.upper(), path, described)


class _Operation:
    """An operation of the document, as text of the client."""

    def __init__(self, method: str, path: str, described: Json) -> None:
        self._method, self._path, self._described = method, path, described
        self.name: str = described["operationId"]
        self.iterator_name = "iter_" + self.name.partition("_")[2]
        parameters = described.get("parameters", ())
        answer = next(value for status, value in described["responses"].items() if status < "300")
        self._content: Json = answer.get("content", {})
        self.is_csv = "text/csv" in self._content
        self._in_path = {one["name"]: one["schema"] for one in parameters if one["in"] == "path"}
        asked = {one["name"]: one["schema"] for one in parameters if one["in"] == "query"}
        self.is_paged = bool(_CURSORS & set(asked)) and "limit" in asked
        self._query = {name: schema for name, schema in asked.items() if name != "format"}
        headers = [one["name"].lower() for one in parameters if one["in"] == "header"]
        self._options = [*(HEADERS[name] for name in headers if name in HEADERS), "timeout_s"]

    def method(self, *, form: str | None = None) -> Iterator[str]:
        """The method that calls it; with a `form`, the one whose answer is text."""
        name, says = self.name, self._described["description"]
        answer = self._answer
        if form is not None:
            name, says, answer = f"{name}_{form}", f"The same as {form.upper()}.", "str"
        yield f"    async def {name}({self._arguments(self._query, self._options)}) -> {answer}:"
        yield _docstring(says)
        query = _pairs(self._query, *([f"'format': {form!r}"] if form else []))
        sent = [
            repr(self._method),
            _formatted(self._path),
            *([f"query={query}"] if query != "{}" else []),
            *(["body=body"] if "requestBody" in self._described else []),
            *(f"{option}={option}" for option in self._options),
        ]
        call = f"await self.request({', '.join(sent)})"
        yield (
            f"        {call}\n"
            if answer == "None"
            else f"        found: {answer} = {call}\n        return found\n"
        )

    def iterator(self, schemas: Json) -> Iterator[str]:
        """The method that goes from page to page."""
        query = {name: schema for name, schema in self._query.items() if name not in _CURSORS}
        field, entry = self._entries(schemas)
        arguments = self._arguments(query, [])
        yield f"    def {self.iterator_name}({arguments}) -> AsyncIterator[{entry}]:"
        yield '        """The same to its end, page by page, an entry at a time; `limit` is of a page."""'
        yield f"        return self._pages({_formatted(self._path)}, {_pairs(query)}, {field!r})\n"

    @property
    def _answer(self) -> str:
        found = self._content.get("application/json")
        return "None" if found is None else type_of(found["schema"], _MODELS)

    def _entries(self, schemas: Json) -> tuple[str | None, str]:
        """The field of a page that has its entries, None where the page is a list, and their type."""
        schema = self._content["application/json"]["schema"]
        if schema.get("type") == "array":
            return None, type_of(schema["items"], _MODELS)
        fields = schemas[schema["$ref"].removeprefix(_REFERENCE)]["properties"].items()
        lists = ((name, one["items"]) for name, one in fields if one.get("type") == "array")
        return next((name, type_of(items, _MODELS)) for name, items in lists if "$ref" in items)

    def _arguments(self, query: Json, options: list[str]) -> str:
        found = ["self", *(f"{name}: {type_of(schema)}" for name, schema in self._in_path.items())]
        body = self._described.get("requestBody")
        if body is not None:
            kind = type_of(body["content"]["application/json"]["schema"], _MODELS)
            may_miss = "" if body.get("required") else " | None = None"
            found.append(f"body: {kind.removesuffix(' | None')}{may_miss}")
        more = [f"{_named(name)}: {type_of(schema)} | None = None" for name, schema in query.items()]
        more += [f"{option}: {OPTIONS[option]} | None = None" for option in options]
        return ", ".join([*found, *(["*", *more] if more else [])])


def _formatted(path: str) -> str:
    below = path.removeprefix(_PREFIX)
    if "{" not in below:
        return repr(below)
    return f'f"{below.replace("{", "{quoted(").replace("}", ")}")}"'


def _pairs(query: Json, *more: str) -> str:
    return "{" + ", ".join([*(f"{name!r}: {_named(name)}" for name in query), *more]) + "}"


def _named(name: str) -> str:
    """An argument must not be called `from` or `class`."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _docstring(text: str, indent: str = " " * 8) -> str:
    first, _, rest = text.strip().partition("\n")
    lines = textwrap.wrap(first, 99)
    whole = "\n".join([*lines, *rest.splitlines()]) if rest or len(lines) > 1 else first
    return textwrap.indent(f'"""{whole}' + ("\n" if "\n" in whole else "") + '"""', indent)


def _document() -> Json:
    from stores import AdminCalls, new_database, opened

    with TemporaryDirectory() as folder, opened(new_database(Path(folder))) as control_plane:
        document: Json = AdminCalls(control_plane).app.openapi()
        return document


if __name__ == "__main__":
    for name, text in generated(_document()).items():
        (FOLDER / name).write_text(formatted(text))
