"""Requests of the Responses API and the Messages API. Their bodies have no field for a tenant.

What other requests carry in their bodies goes to the engine in a header (`engine/link/request_tag.py`). A
request is refused if its answer could be found again by its id, since SGLang does not keep tenants apart
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from pdmuxd.daemon.gateway.bounds import RequestBounds, check_stops
from pdmuxd.daemon.gateway.cache_key import cache_key
from pdmuxd.daemon.gateway.output_tokens import bound_output
from pdmuxd.daemon.gateway.requests import (
    RESERVED_FIELDS,
    EngineRequest,
    check_field,
    parse_required,
    refuse_field,
)
from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.link.request_tag import TAG_HEADER, TENANT_PARAM, RequestTag

_NEVER_PASSED = (
    *RESERVED_FIELDS,
    *("request_id", "session_id", "custom_params", "background", "data_parallel_rank", "routed_dp_rank"),
    *("disagg_prefill_dp_rank", "bootstrap_host", "bootstrap_port", "bootstrap_room"),
)
"""Fields that stock SGLang obeys here and that are not a client's to set."""
_STATEFUL = ("previous_response_id", "conversation", "prompt")
"""Fields of the Responses API that need something to be stored."""

_Object = dict[str, Raw]
_Positive = Annotated[int, Meta(ge=1)]


def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type expression
    return msgspec.json.Decoder(type_)


class _Turn(msgspec.Struct):
    role: str
    content: str | list[_Object]


_NAME = _decoder(Annotated[str, Meta(min_length=1)])
_STOPS = _decoder(str | list[str] | None)
_REQUIRED: Mapping[Kind, Mapping[str, msgspec.json.Decoder[Any]]] = {
    Kind.RESPONSES: {
        "model": _NAME,
        "input": _decoder(str | Annotated[list[_Object], Meta(min_length=1)]),
    },
    Kind.MESSAGES: {
        "model": _NAME,
        "max_tokens": _decoder(_Positive),
        "messages": _decoder(Annotated[list[_Turn], Meta(min_length=1)]),
    },
}
_OPTIONAL: Mapping[str, msgspec.json.Decoder[Any]] = {
    "stream": _decoder(bool | None),
    "max_output_tokens": _decoder(_Positive | None),
    "instructions": _decoder(str | None),
    "system": _decoder(str | list[_Object] | None),
    "temperature": _decoder(float | None),
    "top_p": _decoder(float | None),
    "metadata": _decoder(_Object | None),
    "background": _decoder(bool | None),
}
_PROMPT = {Kind.RESPONSES: "input", Kind.MESSAGES: "messages"}
_STOP = {Kind.RESPONSES: "stop", Kind.MESSAGES: "stop_sequences"}
_NULL, _TRUE = b"null", b"true"


def rewrite_tagged(
    kind: Kind,
    body: bytes,
    *,
    rid: str,
    tenant: str,
    cache_namespace: str,
    bounds: RequestBounds,
    targets: Mapping[str, float],
    max_output_tokens: int | None = None,
) -> EngineRequest:
    """Check `body`, take out what is not a client's to set, and make its tag.

    Raises: RequestError 422 naming the field that is missing, wrong or not supported.
    """
    fields = parse_required(body, bounds, _REQUIRED[kind])
    for name in fields.keys() & _OPTIONAL.keys():
        check_field(name, fields[name], _OPTIONAL[name])
    stop = _STOP[kind]
    if stop in fields:
        check_stops(check_field(stop, fields[stop], _STOPS), bounds, param=stop)
    if kind is Kind.RESPONSES:
        _refuse_state(fields)
        fields["store"] = Raw(b"false")
    is_streamed = bytes(fields.get("stream", _NULL)) == _TRUE
    most = bound_output(kind, fields, max_output_tokens)
    for name in _NEVER_PASSED:
        fields.pop(name, None)
    extra_key = cache_key(fields, cache_namespace)
    if not isinstance(extra_key, str):
        raise refuse_field("the field `extra_key` is a list; one prompt has one key", param="extra_key")
    tag = RequestTag(rid=rid, extra_key=extra_key, custom_params={TENANT_PARAM: tenant, **targets})
    model: str = _NAME.decode(fields["model"])
    return EngineRequest(
        payload=msgspec.json.encode(fields),
        model=model,
        outputs=1,
        max_output_tokens=most,
        is_streamed=is_streamed,
        prompt=bytes(fields[_PROMPT[kind]]),
        headers={TAG_HEADER: tag.encode()},
    )


def _refuse_state(fields: Mapping[str, Raw]) -> None:
    for name in _STATEFUL:
        if bytes(fields.get(name, _NULL)) != _NULL:
            raise _not_stored(name)
    if bytes(fields.get("background", _NULL)) == _TRUE:
        raise _not_stored("background")


def _not_stored(name: str) -> RequestError:
    return refuse_field(
        f"`{name}` is not supported: answers are not stored; send the whole conversation as `input`",
        param=name,
        code="unsupported",
    )
