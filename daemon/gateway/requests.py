"""Checks a request's body and rewrites it for the engine: identity in, reserved fields out.

Values stay the client's own bytes (`msgspec.Raw`): a prompt of many token ids is checked, but never turned
into Python objects and back, and no number changes its spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from pdmuxd.daemon.gateway.bounds import (
    RequestBounds,
    check_outputs,
    check_stops,
    check_values,
    count_outputs,
)
from pdmuxd.daemon.gateway.cache_key import cache_key
from pdmuxd.daemon.gateway.output_tokens import bound_output
from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.daemon.tokens.plain import is_plain
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.link.request_tag import TENANT_PARAM

TOKENS_PARAM = "pdmuxd_tokens"
"""Asks the engine's scheduler for the tokens of the answer (`engine/link/token_frames.py`)."""
RESERVED_PREFIX = "pdmuxd_"
RESERVED_FIELDS = ("rid", "priority", "custom_labels", "session_params", "kv_hints")
"""Fields that stock SGLang obeys and that would let one tenant act on another's requests, order or cache."""

_Body = dict[str, Raw]
_Own = Mapping[str, str | float | bool]
"""Our own entries in the custom parameters."""
_Text = Annotated[str, Meta(min_length=1)]
_TokenIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Body] | None = None


def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type expression
    return msgspec.json.Decoder(type_)


_BODY = _decoder(_Body)
_OBJECT_OR_NULL = _decoder(_Body | None)
_OBJECT = _decoder(_Body)
_OBJECTS = _decoder(list[_Body])
_MODEL = _decoder(_Text)
_TEXT = _decoder(str)
_BATCH_OF_TEXT = _decoder(Annotated[list[str], Meta(min_length=1)])
_IDS = _decoder(_TokenIds)
_BATCH_OF_IDS = _decoder(Annotated[list[_TokenIds], Meta(min_length=1)])
_CHOICES = _decoder(Annotated[int, Meta(ge=1)] | None)
_STOPS = _decoder(str | list[str] | None)
_FALSE = Raw(b"false")
_DEFAULT_BOUNDS = RequestBounds()
_NO_TARGETS: Mapping[str, float] = {}

_REQUIRED: Mapping[Kind, Mapping[str, msgspec.json.Decoder[Any]]] = {
    Kind.CHAT: {
        "model": _MODEL,
        "messages": _decoder(Annotated[list[_Message], Meta(min_length=1)]),
    },
    Kind.COMPLETION: {"model": _MODEL},
    Kind.GENERATE: {},
}
_OPTIONAL: Mapping[str, msgspec.json.Decoder[Any]] = {
    "stream": _decoder(bool | None),
    "stream_options": _OBJECT_OR_NULL,
    "max_tokens": _decoder(int | None),
    "max_completion_tokens": _decoder(int | None),
    "min_tokens": _decoder(int | None),
    "best_of": _CHOICES,
    "n": _CHOICES,
    "seed": _decoder(int | None),
    "temperature": _decoder(float | None),
    "top_p": _decoder(float | None),
    "user": _decoder(str | None),
    "custom_params": _OBJECT_OR_NULL,
}


_PROMPTS = ("messages", "prompt", "text", "input_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A request as it goes to the engine."""

    payload: bytes
    model: str | None
    """The model that the client named; None where the path does not ask for one."""
    outputs: int
    """How many answers it makes: prompts times choices. It takes as many places under the limits."""
    choices: int = 1
    """How many answers to one of its prompts, at most."""
    max_output_tokens: int | None = None
    """Of one answer, at most; None if only the context bounds it."""
    is_streamed: bool = False
    prompt: bytes = b""
    """The prompt as the client sent it, in JSON."""
    takes_tokens: bool = False
    """Whether the scheduler was asked for its tokens."""
    headers: Mapping[str, str] | None = None
    """Headers that go to the engine beside the body."""


def rewrite(
    kind: Kind,
    body: bytes,
    *,
    rid: str,
    tenant: str,
    cache_namespace: str | None = None,
    bounds: RequestBounds = _DEFAULT_BOUNDS,
    targets: Mapping[str, float] = _NO_TARGETS,
    takes_tokens: bool = False,
    max_output_tokens: int | None = None,
) -> EngineRequest:
    """Check `body` and add the request's id, its tenant and its place in the prefix cache.

    Targets of its own are added too, under the names of `engine/link/request_tag.py`. Without a
    `cache_namespace` it shares the cache with nobody. With `takes_tokens` the scheduler is asked for the
    tokens, if the answer is plain text. `max_output_tokens` is what an answer may have at most.
    Raises: RequestError (422) naming the field that is missing, wrong or more than `bounds` allow.
    """
    fields = parse_required(body, bounds, _REQUIRED[kind])
    prompts = 1
    if kind is Kind.COMPLETION:
        prompts = _check_prompt(fields, ("prompt",), missing="prompt")
    elif kind is Kind.GENERATE:
        prompts = _check_prompt(fields, ("text", "input_ids", "input_embeds"), missing="text")
    for name in fields.keys() & _OPTIONAL.keys():
        check_field(name, fields[name], _OPTIONAL[name])
    outputs, choices = _count_outputs(kind, fields, prompts, bounds)
    most = bound_output(kind, fields, max_output_tokens)
    is_streamed = bytes(fields.get("stream", _FALSE)) == b"true"
    prompt = next((bytes(fields[name]) for name in _PROMPTS if name in fields), b"")

    for name in RESERVED_FIELDS:
        fields.pop(name, None)
    fields["extra_key"] = _raw(cache_key(fields, cache_namespace or f"tenant/{tenant}/"))
    fields["rid"] = _raw(rid)
    own: _Own = {TENANT_PARAM: tenant, **targets}
    if kind is Kind.GENERATE:
        if "custom_params" in fields:
            fields["custom_params"] = _with_own(fields["custom_params"], own)
        fields["sampling_params"] = _sampling_params(fields.get("sampling_params"), own)
    else:
        takes_tokens = takes_tokens and outputs == 1 and is_plain(fields)
        if takes_tokens:
            own = {**own, TOKENS_PARAM: True}
        fields["custom_params"] = _with_own(fields.get("custom_params"), own)
    model = _MODEL.decode(fields["model"]) if kind is not Kind.GENERATE else None
    return EngineRequest(
        payload=msgspec.json.encode(fields),
        model=model,
        outputs=outputs,
        choices=choices,
        max_output_tokens=most,
        is_streamed=is_streamed,
        prompt=prompt,
        takes_tokens=takes_tokens and kind is not Kind.GENERATE,
    )


def _count_outputs(kind: Kind, fields: _Body, prompts: int, bounds: RequestBounds) -> tuple[int, int]:
    """Check the stop texts, and count the answers, prompts times choices, and the most choices of one."""
    if kind is not Kind.GENERATE:
        most = _sampling(fields, "", bounds)
        outputs = count_outputs(prompts, most)
        check_outputs(outputs, bounds, param="prompt" if prompts > 1 else "n")
        return outputs, most
    value = fields.get("sampling_params")
    if value is not None and bytes(memoryview(value)[:1]) == b"[":
        each = enumerate(check_field("sampling_params", value, _OBJECTS))
        choices = [_sampling(params, f"sampling_params[{i}].", bounds) for i, params in each]
        outputs, most = count_outputs(prompts, choices), max(choices, default=1)
    else:
        params = {} if value is None else check_field("sampling_params", value, _OBJECT_OR_NULL) or {}
        most = _sampling(params, "sampling_params.", bounds)
        outputs = count_outputs(prompts, most)
    check_outputs(outputs, bounds, param="text" if prompts > 1 else "sampling_params.n")
    return outputs, most


def _sampling(params: _Body, prefix: str, bounds: RequestBounds) -> int:
    """The number of choices that one set of sampling parameters asks for."""
    if "stop" in params:
        check_stops(check_field(f"{prefix}stop", params["stop"], _STOPS), bounds, param=f"{prefix}stop")
    asked = [
        check_field(prefix + name, params[name], _CHOICES) for name in ("n", "best_of") if name in params
    ]
    return max((number for number in asked if number is not None), default=1)


def parse_body(body: bytes) -> _Body:
    """The fields of a JSON object, not parsed further. Raises: RequestError 422."""
    try:
        if not body.isascii():
            body.decode()
        fields: _Body = _BODY.decode(body)
    except msgspec.ValidationError:
        raise refuse_field("the body must be a JSON object", code="not_an_object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse_field(f"the body is not JSON: {error}", code="invalid_json") from None
    return fields


def parse_required(
    body: bytes, bounds: RequestBounds, required: Mapping[str, msgspec.json.Decoder[Any]]
) -> _Body:
    """The members of a body that has these fields; RequestError 422 naming one that is missing or wrong."""
    check_values(body, bounds)
    fields = parse_body(body)
    for name, decoder in required.items():
        if name not in fields:
            raise refuse_field(f"the field `{name}` is missing", param=name, code="missing_field")
        check_field(name, fields[name], decoder)
    return fields


def check_field(name: str, value: Raw, decoder: msgspec.json.Decoder[Any]) -> Any:  # noqa: ANN401 - as decoded
    """Decode one field. Raises: RequestError 422 naming it, or what in it is wrong."""
    try:
        return decoder.decode(value)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        param = name + where.rstrip("`")
        raise refuse_field(
            f"the field `{param}` is wrong: {what[:1].lower()}{what[1:]}", param=param
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise refuse_field(
            f"the field `{name}` cannot be read: {error}", param=name, code="invalid_json"
        ) from None


def _check_prompt(fields: _Body, names: tuple[str, ...], *, missing: str) -> int:
    """At least one of `names` must be there, and each in a form that it allows; the number of prompts."""
    given = [name for name in names if name in fields and bytes(fields[name]) != b"null"]
    if not given:
        wanted = " or ".join(f"`{name}`" for name in names)
        raise refuse_field(f"the field {wanted} is missing", param=missing, code="missing_field")
    prompts = 1
    for name in given:
        if name == "input_embeds":
            continue
        decoder = _prompt_decoder(name, bytes(memoryview(fields[name])[:64]))
        value = check_field(name, fields[name], decoder)
        if decoder in (_BATCH_OF_TEXT, _BATCH_OF_IDS):
            prompts = max(prompts, len(value))
    return prompts


def _prompt_decoder(name: str, head: bytes) -> msgspec.json.Decoder[Any]:
    """Which form a prompt takes shows in its first characters: text, token ids, or a batch of either."""
    compact = bytes(byte for byte in head if byte not in b" \t\r\n")
    if name == "text":
        return _BATCH_OF_TEXT if compact.startswith(b"[") else _TEXT
    if compact.startswith(b"[["):
        return _BATCH_OF_IDS
    if name == "input_ids":
        return _IDS
    if compact.startswith(b'["'):
        return _BATCH_OF_TEXT
    return _IDS if compact.startswith(b"[") else _TEXT


def _with_own(custom_params: Raw | None, own: _Own) -> Raw:
    params = (
        {} if custom_params is None else check_field("custom_params", custom_params, _OBJECT_OR_NULL) or {}
    )
    kept = {name: value for name, value in params.items() if not name.startswith(RESERVED_PREFIX)}
    return _raw({**kept, **own})


def _sampling_params(value: Raw | None, own: _Own) -> Raw:
    """The sampling parameters: one object, or one per prompt of a batch."""
    if value is not None and bytes(memoryview(value)[:1]) == b"[":
        return _raw(
            [_one_sampling_params(each, own) for each in check_field("sampling_params", value, _OBJECTS)]
        )
    if value is None:
        return _raw(_one_sampling_params({}, own))
    return _raw(_one_sampling_params(check_field("sampling_params", value, _OBJECT_OR_NULL) or {}, own))


def _one_sampling_params(params: _Body, own: _Own) -> Mapping[str, Raw]:
    return {**params, "custom_params": _with_own(params.get("custom_params"), own)}


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def refuse_field(message: str, *, param: str | None = None, code: str = "invalid_value") -> RequestError:
    """The error of a request that is refused for its content."""
    return RequestError(message, status=422, code=code, param=param)


def check_model(model: str | None, known: frozenset[str]) -> None:
    """Raises: RequestError 404 if the client named a model that is not served here."""
    if model is not None and model not in known:
        raise RequestError(
            f"the model `{model[:80]}` is not served here; known are {', '.join(sorted(known))}",
            status=404,
            code="model_not_found",
            param="model",
        )
