"""Errors as `application/problem+json` (RFC 9457); the one table from exceptions to HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from pdmuxd.engine.core import errors

MEDIA_TYPE = "application/problem+json"
_METHODS = frozenset({"get", "put", "post", "patch", "delete"})
_SHOWN_CHARACTERS = 60
TYPE_PREFIX = "urn:pdmuxd:problem:"

PROBLEMS: tuple[tuple[type[errors.PdmuxdError], HTTPStatus, str], ...] = (
    (errors.TenantDisabledError, HTTPStatus.FORBIDDEN, "tenant-disabled"),
    (errors.ReadOnlyError, HTTPStatus.FORBIDDEN, "read-only"),
    (errors.KeyScopeError, HTTPStatus.FORBIDDEN, "forbidden"),
    (errors.AuthError, HTTPStatus.UNAUTHORIZED, "unauthorized"),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND, "not-found"),
    (errors.StaleVersionError, HTTPStatus.PRECONDITION_FAILED, "stale-version"),
    (errors.InfeasibleTargetError, HTTPStatus.CONFLICT, "infeasible-target"),
    (errors.ConflictError, HTTPStatus.CONFLICT, "conflict"),
    (errors.InvalidValueError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-value"),
    (errors.SloError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-value"),
    (errors.ProfileError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-value"),
    (errors.PolicyError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-value"),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "store-unavailable"),
    (errors.EngineError, HTTPStatus.SERVICE_UNAVAILABLE, "engine-unavailable"),
    (errors.PdmuxdError, HTTPStatus.INTERNAL_SERVER_ERROR, "internal"),
)
"""The first class that matches is used, so subclasses stand before their bases."""


class Problem(BaseModel):
    """The body of every answer of 400 and above."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": TYPE_PREFIX + "invalid-value",
                    "title": "Unprocessable Entity",
                    "status": 422,
                    "detail": "tbt_ms is 0; allowed are 1 to 10000",
                    "field": "tbt_ms",
                }
            ]
        }
    )

    type: str = Field(description="what went wrong, for programs; stable")
    title: str = Field(description="the HTTP status in words")
    status: int
    detail: str = Field(description="what went wrong, for people: the field, its value and what is allowed")
    field: str | None = Field(description="the field of the request that is wrong, if it is one")


def problem(
    status: int,
    slug: str,
    detail: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Build the answer for one problem."""
    body = Problem(
        type=TYPE_PREFIX + slug, title=HTTPStatus(status).phrase, status=status, detail=detail, field=field
    )
    return JSONResponse(body.model_dump(), status, headers, MEDIA_TYPE)


def as_problem(error: Exception) -> Problem:
    """What an expected error is told as, where the answer is not JSON."""
    if isinstance(error, errors.PdmuxdError):
        answer = _on_pdmuxd_error(None, error)
    elif isinstance(error, RequestValidationError):
        answer = _on_invalid_request(None, error)
    else:
        assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
        answer = problem(error.status_code, "http", error.detail)
    return Problem.model_validate_json(bytes(answer.body))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, for OpenAPI: those of every route, and what else it may answer."""
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
        for status in sorted(ALWAYS.union(statuses))
    }


ALWAYS = frozenset({400, 401, 403, 405, 408, 413, 421, 422, 429, 431, 500, 503})
"""Any route may answer these: a wrong token, scope, method or body; a lost database; a defect; and what is
refused before the application: broken HTTP, slow or large requests, another Host, too many wrong tokens."""
_SCHEMA = {"$ref": "#/components/schemas/Problem"}


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of `app` as a problem."""
    app.add_exception_handler(errors.PdmuxdError, _on_pdmuxd_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_defect)


def _on_pdmuxd_error(_request: Request | None, error: Exception) -> JSONResponse:
    status, slug = next((status, slug) for kind, status, slug in PROBLEMS if isinstance(error, kind))
    return problem(status, slug, str(error), field=getattr(error, "field", None))


def _on_invalid_request(_request: Request | None, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type checker
    found: Sequence[Mapping[str, Any]] = error.errors()
    if found[0]["type"] == "json_invalid":
        where = f"at character {found[0]['loc'][-1]}"
        return problem(422, "invalid-value", f"the body is not JSON: error {where}", field="body")
    details = [_detail(one) for one in found]
    return problem(422, "invalid-value", "; ".join(details), field=_field(found[0]))


def _detail(found: Mapping[str, Any]) -> str:
    """Our own validators write whole sentences; of the library's we say which field they mean."""
    message = str(found["msg"])
    if "sentence" in found["type"]:
        return message
    if "input" in found and isinstance(found["input"], (str, int, float)):
        shown = ascii(found["input"])[:_SHOWN_CHARACTERS]
        return f"{_field(found)} is {shown}; {message[:1].lower()}{message[1:]}"
    return f"{_field(found)}: {message}"


def _field(found: Mapping[str, Any]) -> str:
    """`slo.tbt_ms` for the location ("body", "slo", "tbt_ms"); what a validator names comes last."""
    path = [str(part) for part in found["loc"][1:]]
    named = found.get("ctx", {}).get("field")
    if named is not None:
        # The framework has headers in lower case; those who read know them as they are written.
        path = [part for part in path if part.lower() != named.lower()] + [named]
    return ".".join(path) or str(found["loc"][0])


def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # Starlette's message for a body that is not text, or is nested too deeply for its parser.
        return problem(422, "invalid-value", "the body is not JSON that can be read", field="body")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _on_wrong_method(request, error)
    phrase = HTTPStatus(error.status_code).phrase
    slug = phrase.lower().replace(" ", "-")
    return problem(error.status_code, slug, error.detail, headers=error.headers)


def _on_wrong_method(request: Request, error: HTTPException) -> JSONResponse:
    """The framework names the methods of the first route of that path only."""
    path, paths = request.url.path, request.app.openapi()["paths"]
    fitting = (
        [paths[path]]
        if path in paths
        else [item for known, item in paths.items() if compile_path(known)[0].fullmatch(path)]
    )
    methods = {method.upper() for item in fitting for method in item if method in _METHODS}
    allowed = ", ".join(sorted(methods)) or (error.headers or {}).get("Allow", "")
    detail = f"{path[:80]} takes {allowed}, not {request.method}"
    return problem(405, "method-not-allowed", detail, headers={"Allow": allowed})


def _on_defect(_request: Request, _error: Exception) -> JSONResponse:
    """An unexpected error: the server logs it, the client is told only that it happened."""
    return problem(500, "internal", "pdmuxd failed; its log says more")
