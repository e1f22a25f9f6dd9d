"""What a request asks the emulated model to say in a form of its own: JSON, or the call of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.emulator.server.json_filler import json_for
from pdmuxd.engine.emulator.server.refusals import refuse

_ANY_OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """An answer whose text is known."""

    text: str
    tool: str | None = None
    """The tool that is called with this text; None: it is the content."""


class _JsonSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None


class ResponseFormat(msgspec.Struct):
    """`response_format`; in the Responses API the schema stands in it."""

    type: str = "text"
    json_schema: _JsonSchema | None = None
    schema: dict[str, Any] | None = None


class _Function(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    """A tool of a chat."""

    function: _Function
    type: str = "function"


class _Named(msgspec.Struct):
    function: _Function | None = None


ToolChoice = str | _Named
_TOOLS = msgspec.json.Decoder(list[Tool] | None)
_CHOICE = msgspec.json.Decoder(ToolChoice | None)


def formatted(asked: ResponseFormat | None, param: str) -> Structure | None:
    """The answer in a format. Raises: RequestError 400 for one that is unknown or that no value fits."""
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return Structure(text=json_for(_ANY_OBJECT, param))
    if asked.type != "json_schema":
        raise refuse(f"`{param}.type` must be text, json_object or json_schema", param=f"{param}.type")
    schema = asked.schema if asked.json_schema is None else asked.json_schema.schema
    if schema is None:
        raise refuse(f"`{param}` is of type json_schema and has no schema", param=param)
    return Structure(text=json_for(schema, param))


def fits(schema: bytes, param: str) -> Structure | None:
    """The answer that fits a schema, which is an object or its JSON text."""
    if schema == b"null":
        return None
    try:
        given = msgspec.json.decode(schema)
        given = msgspec.json.decode(given) if isinstance(given, str) else given
    except msgspec.DecodeError:
        raise refuse(f"`{param}` is no JSON", param=param) from None
    return Structure(text=json_for(given, param))


def called(tools: bytes, choice: bytes, *, has_result: bool) -> Structure | None:
    """The call of a tool; None for an answer in text.

    With `auto` the first tool is called once: after a tool's result the model says something, so that an
    agent comes to an end. Raises: RequestError 400.
    """
    given = _read(tools, _TOOLS, "tools")
    wanted = _read(choice, _CHOICE, "tool_choice")
    if isinstance(wanted, str) and wanted not in ("auto", "required", "none"):
        raise refuse("`tool_choice` must be auto, required, none or a function", param="tool_choice")
    if not given:
        if wanted == "required" or isinstance(wanted, _Named):
            raise refuse("`tool_choice` asks for a tool, and `tools` has none", param="tool_choice")
        return None
    if wanted == "none" or (wanted in (None, "auto") and has_result):
        return None
    by_name: Mapping[str, Tool] = {tool.function.name: tool for tool in given}
    name = given[0].function.name
    if isinstance(wanted, _Named):
        name = "" if wanted.function is None else wanted.function.name
    if name not in by_name:
        raise refuse(f"`tool_choice` names {name[:64]!r}, which is not in `tools`", param="tool_choice")
    parameters = by_name[name].function.parameters or {"type": "object"}
    return Structure(text=json_for(parameters, "tools"), tool=name)


def _read(raw: bytes, decoder: msgspec.json.Decoder[Any], param: str) -> Any:  # noqa: ANN401 - as decoded
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _wrong(param, error) from None


def _wrong(param: str, error: Exception) -> RequestError:
    what, _, where = str(error).partition(" - at `$")
    missing = what.partition("missing required field ")[2].strip("`")
    place = f"{param}{where.rstrip('`')}.{missing}".strip(".")
    return refuse(f"`{place}` is wrong: {what[:1].lower()}{what[1:]}", param=place)
