"""The data plane as an OpenAPI document, made of the routes and of the request contract.

It names what may be sent and what may come back. What an answer holds is OpenAI's, Anthropic's or SGLang's.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from pdmuxd.daemon.gateway.contract.tables import REQUIRED, TABLES
from pdmuxd.daemon.gateway.dialects import ANTHROPIC
from pdmuxd.daemon.gateway.routes import (
    ANTHROPIC_VERSION,
    NOT_SUPPORTED,
    ONE_MODEL,
    OPERATIONS,
    ROUTES,
    Kind,
    Route,
    dialect_of,
)

_OPEN = frozenset({Kind.HEALTH, Kind.LOAD_METRICS})
"""Answered without a key."""
_IN_BOTH = frozenset({Kind.MODELS, Kind.MODEL})
"""In OpenAI's form or in Anthropic's."""
BEFORE_ROUTING = frozenset({400, 408, 431, 503})
"""Refused before the path is known for certain, so in OpenAI's shape under Anthropic's paths as well."""
_EVERYWHERE = BEFORE_ROUTING | {405, 500}
_WITH_A_KEY = frozenset({401, 403, 429})
_WITH_A_BODY = frozenset({404, 413, 415})
_FROM_THE_ENGINE = frozenset({502, 504})
_TEXT = {"type": "string"}
_ERROR = {
    "type": "object",
    "required": ["type", "message", "param", "code"],
    "properties": {
        "type": _TEXT,
        "message": {"type": "string", "description": "what is wrong, and what is allowed"},
        "param": {"type": ["string", "null"], "description": "the field of the body that is wrong"},
        "code": {"type": "string", "description": "what is wrong, for programs; stable"},
        "limit": {"type": "object", "description": "of a 429: which limit, and what of it is used"},
    },
}
_SCHEMAS = {
    "OpenAIError": {"type": "object", "required": ["error"], "properties": {"error": _ERROR}},
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "properties": {"type": {"const": "error"}, "error": _ERROR},
    },
}


def statuses_of(route: Route) -> frozenset[int]:
    """Every status of 400 and above that a call of this route may get."""
    found = _EVERYWHERE
    if route.kind not in _OPEN:
        found |= _WITH_A_KEY
    if route.kind in TABLES:
        found |= _WITH_A_BODY
    if route.kind in TABLES or route.kind in _IN_BOTH or route.kind is Kind.TOKENIZER:
        found |= _FROM_THE_ENGINE
    if route.kind in (Kind.MODEL, Kind.LOAD_METRICS, Kind.TOKENIZER):
        found |= {404}
    return found


@cache
def document() -> bytes:
    """The document as JSON."""
    paths: dict[str, dict[str, Any]] = {
        route.path: {route.method.lower(): _operation(route)} for route in (*ROUTES.values(), ONE_MODEL)
    }
    for below, why in NOT_SUPPORTED.items():
        route = Route(path=f"{below}{{id}}", method="GET", kind=Kind.ABOUT, dialect=dialect_of(below))
        refused = _responses(route, _EVERYWHERE | {501})
        said = {"summary": f"Not served: {why}.", "parameters": [_ID], "responses": refused}
        paths[route.path] = {"get": said}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "pdmuxd: data plane",
                "version": version("pdmuxd"),
                "description": "OpenAI's, Anthropic's and SGLang's paths, with a tenant's key.",
            },
            "paths": paths,
            "components": {
                "schemas": _SCHEMAS,
                "securitySchemes": {
                    "key": {"type": "http", "scheme": "bearer", "description": "a tenant's API key"},
                    "x_api_key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                },
            },
        }
    )


_VERSION = {
    "name": ANTHROPIC_VERSION.decode(),
    "in": "header",
    "description": "answered in Anthropic's form",
    "schema": _TEXT,
}
_ID = {"name": "id", "in": "path", "required": True, "schema": _TEXT}


def _operation(route: Route) -> dict[str, Any]:
    said: dict[str, Any] = {"summary": route.kind.value.replace("_", " ")}
    if route.kind not in _OPEN:
        said["security"] = [{"key": []}, {"x_api_key": []}]
    said["parameters"] = [_ID] if "{" in route.path else []
    if route.kind in _IN_BOTH:
        said["parameters"] = [*said["parameters"], _VERSION]
    if route.kind in TABLES:
        body = {
            "type": "object",
            "required": list(REQUIRED[route.kind]),
            "properties": {name: {} for name in sorted(TABLES[route.kind])},
        }
        said["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    media = ["text/plain" if route.kind is Kind.LOAD_METRICS else "application/json"]
    if route.kind in OPERATIONS:
        media.append("text/event-stream")
    answer = {"200": {"description": "OK", "content": {name: {} for name in media}}}
    said["responses"] = answer | _responses(route, statuses_of(route))
    return said


def _responses(route: Route, statuses: frozenset[int]) -> dict[str, Any]:
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": _shape(route, status)}},
        }
        for status in sorted(statuses)
    }


def _shape(route: Route, status: int) -> dict[str, Any]:
    openai, anthropic = ({"$ref": f"#/components/schemas/{name}"} for name in _SCHEMAS)
    if route.kind in _IN_BOTH or (route.dialect is ANTHROPIC and status in BEFORE_ROUTING):
        return {"anyOf": [anthropic, openai]}
    return anthropic if route.dialect is ANTHROPIC else openai
