"""JSON that fits a schema: what the emulated model says where a client asks for structured output.

The value means nothing, as the filler's text does, but a client that validates it finds it right. What a
schema asks for and cannot be made here (a pattern, a reference to elsewhere) is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pdmuxd.engine.emulator.server.refusals import refuse

MAX_DEPTH = 64
"""SGLang's grammar compiler takes deeper ones; Python's stack, eight frames for each level here, does not."""
_WHOLE_DEPTH = 4
"""Down to here optional members are given as well; below, only what must be there: schemas recur."""
_WORDS = ["quiet", "river", "stone", "house", "green", "field", "lamp", "tree"]
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "river@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_TYPE_OF_KEYWORD = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
}
_Schema = Mapping[str, Any]


def json_for(schema: object, param: str) -> str:
    """A JSON text that fits. Raises: RequestError 400 naming `param`."""
    return json.dumps(_Filler(schema, param).value(schema, 0, 0), separators=(", ", ": "))


class _Filler:
    def __init__(self, root: object, param: str) -> None:
        self._root = root
        self._param = param

    def value(self, schema: object, depth: int, index: int) -> Any:  # noqa: ANN401 - any JSON value
        """A value for a part of the schema; `index` makes items of a list differ."""
        if depth > MAX_DEPTH:
            raise self._refuse(f"is nested more than {MAX_DEPTH} levels deep")
        if schema is True or schema == {}:
            return _WORDS[index % len(_WORDS)]
        if not isinstance(schema, Mapping):
            raise self._refuse("is no JSON schema")
        if "$ref" in schema:
            return self.value(self._referred(schema["$ref"]), depth + 1, index)
        if "const" in schema:
            return schema["const"]
        if enum := schema.get("enum"):
            if not isinstance(enum, list):
                raise self._refuse("has an `enum` that is no list")
            return enum[index % len(enum)]
        if "allOf" in schema:
            return self.value(self._merged(schema), depth + 1, index)
        for name in ("anyOf", "oneOf"):
            if options := schema.get(name):
                rest = {key: value for key, value in schema.items() if key != name}
                return self.value(self._joined(rest, self._chosen(options, depth)), depth + 1, index)
        return self._of_type(_type_of(schema, depth), schema, depth, index)

    def _of_type(self, kind: str, schema: _Schema, depth: int, index: int) -> Any:  # noqa: ANN401 - any JSON value
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema, index)
            case "integer" | "number":
                return self._number(schema, index, is_whole=kind == "integer")
            case "boolean":
                return index % 2 == 0
            case "null":
                return None
        raise self._refuse(f"has the unknown type {kind[:40]!r}")

    def _object(self, schema: _Schema, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required") or []
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise self._refuse("has `properties` or `required` of a wrong form")
        names = [name for name in properties if name in required or depth < _WHOLE_DEPTH]
        more = schema.get("additionalProperties", True)
        names += [name for name in required if name not in properties]
        made = {name: self.value(properties.get(name, more), depth + 1, 0) for name in names}
        for number in range(len(made), _count(schema, "minProperties", 0)):
            made[f"field_{number}"] = self.value(more, depth + 1, number)
        return made

    def _array(self, schema: _Schema, depth: int) -> list[Any]:
        first = schema.get("prefixItems") or []
        least, most = _count(schema, "minItems", 0), _count(schema, "maxItems", 1 << 30)
        items = schema.get("items", True)
        length = max(least, min(len(first) or int(depth < _WHOLE_DEPTH), most))
        if length > 1024:
            raise self._refuse(f"asks for {length} items")
        parts = [first[i] if i < len(first) else items for i in range(length)]
        return [self.value(part, depth + 1, i) for i, part in enumerate(parts)]

    def _string(self, schema: _Schema, index: int) -> str:
        if "pattern" in schema:
            raise self._refuse("has a `pattern`, which is not supported by the emulated engine")
        known = _FORMATS.get(str(schema.get("format")))
        if known is not None:
            return known
        least, most = _count(schema, "minLength", 0), _count(schema, "maxLength", 1 << 30)
        if least > 65_536:
            raise self._refuse(f"asks for a text of {least} characters")
        text = _WORDS[index % len(_WORDS)] + (f" {index}" if index >= len(_WORDS) else "")
        while len(text) < least:
            text += " " + _WORDS[len(text) % len(_WORDS)]
        return text[: max(least, min(most, len(text)))]

    def _number(self, schema: _Schema, index: int, *, is_whole: bool) -> float:
        low = _bound(schema, "minimum", "exclusiveMinimum", 1 if is_whole else 0.5)
        high = _bound(schema, "maximum", "exclusiveMaximum", -1 if is_whole else -0.5)
        start = low if low is not None else 1 if high is None else min(1, high)
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and step > 0:
            return math.ceil(start / step) * step
        value = math.ceil(start) + index if is_whole else start + index
        return value if high is None else min(value, math.floor(high) if is_whole else high)

    def _chosen(self, options: object, depth: int) -> _Schema:
        if not isinstance(options, list) or not all(isinstance(each, Mapping) for each in options):
            raise self._refuse("has alternatives that are no schemas")
        wants_null = depth >= _WHOLE_DEPTH
        for option in options:
            if (option.get("type") == "null") == wants_null:
                return dict(option)
        return dict(options[0])

    def _merged(self, schema: _Schema) -> _Schema:
        whole: _Schema = {key: value for key, value in schema.items() if key != "allOf"}
        parts = schema["allOf"]
        if not isinstance(parts, list):
            raise self._refuse("has an `allOf` that is no list")
        for part in parts:
            whole = self._joined(whole, part)
        return whole

    def _joined(self, one: _Schema, other: object) -> _Schema:
        depth = 0
        while isinstance(other, Mapping) and "$ref" in other:
            other, depth = self._referred(other["$ref"]), depth + 1
            if depth > MAX_DEPTH:
                raise self._refuse("refers to itself")
        if not isinstance(other, Mapping):
            raise self._refuse("has a part that is no schema")
        joined = {**one, **other}
        joined["properties"] = {**(one.get("properties") or {}), **(other.get("properties") or {})}
        joined["required"] = [*(one.get("required") or []), *(other.get("required") or [])]
        return {key: value for key, value in joined.items() if value or key not in ("properties", "required")}

    def _referred(self, pointer: object) -> object:
        """What `#/$defs/Name` points to."""
        found = self._root
        parts = str(pointer).split("/")
        if parts[0] != "#":
            raise self._refuse(f"refers to {str(pointer)[:80]!r}, which is not in it")
        for part in parts[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise self._refuse(f"refers to {str(pointer)[:80]!r}, which is not in it")
            found = found[name]
        return found

    def _refuse(self, why: str) -> Exception:
        return refuse(f"the schema in `{self._param}` {why}", param=self._param)


def _type_of(schema: _Schema, depth: int) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        return str(others[0]) if others and (depth < _WHOLE_DEPTH or "null" not in kind) else "null"
    if kind is not None:
        return str(kind)
    return next((of for keyword, of in _TYPE_OF_KEYWORD.items() if keyword in schema), "string")


def _count(schema: _Schema, name: str, default: int) -> int:
    value = schema.get(name, default)
    return int(value) if isinstance(value, int | float) and value >= 0 else default


def _bound(schema: _Schema, name: str, exclusive: str, step: float) -> float | None:
    value, beyond = schema.get(name), schema.get(exclusive)
    if isinstance(beyond, int | float) and not isinstance(beyond, bool):
        return beyond + step
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
