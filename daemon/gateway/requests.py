"""Checks a request's body and rewrites it for the engine: identity in, what is not a client's to set out.

Values stay the client's own bytes (`msgspec.Raw`): a prompt of many token ids is checked, but never turned
into Python objects and back, and no number changes its spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, cast

import msgspec
from msgspec import Meta, Raw

from pdmuxd.daemon.gateway.bounds import RequestBounds, check_outputs, check_values, count_outputs
from pdmuxd.daemon.gateway.cache_key import CLIENT_FIELDS, cache_key
from pdmuxd.daemon.gateway.contract import sampling_params
from pdmuxd.daemon.gateway.contract.fields import check_known, parse_body, require
from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.prompts import is_list_of_prompts, number_of_prompts
from pdmuxd.daemon.gateway.contract.refusals import refuse_field, refuse_value
from pdmuxd.daemon.gateway.contract.tables import (
    REFUSED,
    REFUSED_ON,
    REQUIRED,
    SAMPLING_PARAMS,
    TABLES,
)
from pdmuxd.daemon.gateway.contract.values import Object, decoder
from pdmuxd.daemon.gateway.output_tokens import bound_output
from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.daemon.supervisor.address import EngineRanges
from pdmuxd.daemon.tokens import plain
from pdmuxd.daemon.tokens.plain import Direct
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.link.request_tag import TAG_HEADER, TENANT_PARAM, RequestTag

TOKENS_PARAM = "pdmuxd_tokens"
"""Asks the engine's scheduler for the tokens of the answer (`engine/link/token_frames.py`): its id."""
PARSED_PARAM = "pdmuxd_parsed"
"""Beside it, of a chat: which parsers of SGLang's may read the answer."""

_CHOICES = decoder(Annotated[int, Meta(ge=1)] | None)
_MODEL = decoder(str)
_LIST = decoder(list[Raw])
_IDS = "token_ids_logprob"
_FOR_EACH_PROMPT = frozenset(
    {"sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num", _IDS}
)
"""Fields of /generate that may be lists."""
_NULL, _TRUE = b"null", b"true"
_DEFAULT_BOUNDS = RequestBounds()
_UNKNOWN = EngineRanges()
_NO_TARGETS: Mapping[str, float] = {}
_PROMPTS = {
    Kind.CHAT: ("messages",),
    Kind.COMPLETION: ("prompt",),
    Kind.GENERATE: ("text", "input_ids"),
    Kind.RESPONSES: ("input",),
    Kind.MESSAGES: ("messages",),
    Kind.SCORE: ("items",),
}
_TAGGED = frozenset({Kind.RESPONSES, Kind.MESSAGES, Kind.SCORE})
_DIRECT: Mapping[Kind, Callable[[Object], Direct | None]] = {
    Kind.CHAT: plain.openai,
    Kind.COMPLETION: plain.openai,
    Kind.GENERATE: plain.generate,
    Kind.RESPONSES: plain.responses,
    Kind.MESSAGES: plain.messages,
}
"""What an answer needs to be made of tokens."""
_REFUSED = {kind: {**REFUSED, **REFUSED_ON.get(kind, {})} for kind in _PROMPTS}


def _as_named(model: str) -> str:
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A request as it goes to the engine."""

    payload: bytes
    model: str | None
    """The model that the client asked for; None where the path does not ask for one."""
    outputs: int
    """How many answers it makes: prompts times choices. It takes as many places under the limits."""
    choices: int = 1
    """How many answers to one of its prompts, at most."""
    max_output_tokens: int | None = None
    """Of one answer, at most; None if only the context bounds it."""
    is_streamed: bool = False
    prompt: bytes = b""
    """The prompt as the client sent it, in JSON."""
    direct: Direct | None = None
    """What the answer needs that is made of the scheduler's tokens; None: they were not asked for."""
    headers: Mapping[str, str] | None = None
    """Headers that go to the engine beside the body."""
    ranges: EngineRanges | None = None
    """The engine's that it was checked against; None: no engine was known yet."""
    check: Callable[[EngineRanges], None] | None = None
    """Then this checks it against one. Raises: RequestError 400."""


def rewrite(
    kind: Kind,
    body: bytes,
    *,
    rid: str,
    tenant: str,
    cache_namespace: str | None = None,
    bounds: RequestBounds = _DEFAULT_BOUNDS,
    ranges: EngineRanges | None = None,
    targets: Mapping[str, float] = _NO_TARGETS,
    takes_tokens: Callable[[Direct], bool] = lambda _: False,
    max_output_tokens: int | None = None,
    model_of: Callable[[str], str] = _as_named,
) -> EngineRequest:
    """Check `body` and add the request's id, its tenant and its place in the prefix cache.

    Targets of its own are added too, under the names of `engine/link/request_tag.py`. Without a
    `cache_namespace` it shares the cache with nobody. The scheduler is asked for the tokens if the answer can
    be made of them and `takes_tokens` agrees. `max_output_tokens` is what an answer may have at most.
    `model_of` is the model that a name stands for. Bodies of some APIs have no field for all this: it goes in
    a header.
    Raises: RequestError (400) naming the field that is missing, wrong or more than is allowed.
    """
    check_values(body, bounds)
    fields = parse_body(body)
    require(fields, REQUIRED[kind])
    limits = Limits(bounds=bounds, ranges=ranges or _UNKNOWN)
    kept = check_known(fields, TABLES[kind], limits, refused=_REFUSED[kind])
    prompt = _prompt(kind, kept)
    outputs, choices = _count_outputs(kind, kept, prompt, bounds)
    most = bound_output(kind, kept, max_output_tokens)
    is_streamed = bytes(kept.get("stream", b"")) == _TRUE
    key = cache_key(kept, cache_namespace or f"tenant/{tenant}/")
    _check_keys(key, fields, prompt, kind)
    own: dict[str, str | float] = {TENANT_PARAM: tenant, **targets}
    own_fields: dict[str, object] = {}
    headers = None
    asks = _DIRECT.get(kind)
    direct = None if asks is None else asks(kept)
    if direct is not None and not takes_tokens(direct):
        direct = None
    if direct is not None:
        own[TOKENS_PARAM] = rid
        if direct.is_chat:
            own[PARSED_PARAM] = "calls" if direct.has_tools else "chat"
    if kind in _TAGGED:
        if kind is Kind.RESPONSES:
            # Whoever knows an id could read another tenant's answer.
            own_fields["store"] = False
        headers = {TAG_HEADER: _tag(rid, cast(str, key), own).encode()}
    else:
        own_fields |= {"extra_key": key, "rid": rid}
        if kind is Kind.GENERATE:
            asked = kept.get("sampling_params")
            own_fields["sampling_params"] = sampling_params.rewritten(asked, SAMPLING_PARAMS, own)
        else:
            own_fields["custom_params"] = own
    model = None
    if kind is not Kind.GENERATE:
        named = _MODEL.decode(kept["model"])
        model = model_of(named)
        if model != named:
            own_fields["model"] = model
    return EngineRequest(
        payload=msgspec.json.encode({**kept, **own_fields}),
        model=model,
        outputs=outputs,
        choices=choices,
        max_output_tokens=most,
        is_streamed=is_streamed,
        prompt=bytes(prompt),
        direct=direct,
        headers=headers,
        ranges=ranges,
        check=partial(_check_again, fields, kind, bounds) if ranges is None else None,
    )


def _check_again(fields: Object, kind: Kind, bounds: RequestBounds, ranges: EngineRanges) -> None:
    check_known(fields, TABLES[kind], Limits(bounds=bounds, ranges=ranges))


def _prompt(kind: Kind, fields: Object) -> Raw:
    """The first prompt that is given. Raises: RequestError 400 if none is."""
    names = _PROMPTS[kind]
    for name in names:
        if name in fields and bytes(fields[name]) != _NULL:
            return fields[name]
    wanted = " or ".join(f"`{name}`" for name in names)
    raise refuse_field(f"the field {wanted} is missing", param=names[0], code="missing_field")


def _count_outputs(kind: Kind, fields: Object, prompt: Raw, bounds: RequestBounds) -> tuple[int, int]:
    """Count the answers, prompts times choices, and the most choices of one.

    Raises: RequestError 400 for more than are allowed.
    """
    if kind in (Kind.RESPONSES, Kind.MESSAGES) or (kind is Kind.CHAT and "n" not in fields):
        return 1, 1
    prompts = 1 if kind is Kind.CHAT else number_of_prompts(prompt)
    if kind is Kind.GENERATE:
        _check_lengths(fields, prompt, prompts)
        value = fields.get("sampling_params")
        sets = sampling_params.each_of(Raw(_NULL) if value is None else value)
        counts = [_choices(params, ("n",)) for _, params in sets]
        is_list = value is not None and bytes(memoryview(value)[:1]) == b"["
        outputs = count_outputs(prompts, counts if is_list else counts[0])
        check_outputs(outputs, bounds, param="text" if prompts > 1 else "sampling_params.n")
        return outputs, max(counts, default=1)
    choices = _choices(fields)
    outputs = count_outputs(prompts, choices)
    if kind is Kind.SCORE:
        check_outputs(outputs, bounds, param="items")
        return outputs, 1
    asked_by = "prompt" if prompts > 1 else "best_of" if "best_of" in fields else "n"
    check_outputs(outputs, bounds, param=asked_by)
    return outputs, choices


def _check_lengths(fields: Object, prompt: Raw, prompts: int) -> None:
    """What is given for each prompt is given for all, and only in a batch. Raises: RequestError 400."""
    is_batch = is_list_of_prompts(prompt)
    for name in _FOR_EACH_PROMPT & fields.keys():
        value = fields[name]
        # Of one prompt these are a list of ids, of a batch a list of such lists.
        is_list = is_list_of_prompts(value) if name == _IDS else bytes(memoryview(value)[:1]) == b"["
        if is_list and not is_batch:
            raise refuse_value(name, "one value, not a list: there is one prompt, not a list of prompts")
        if is_list and (given := len(_LIST.decode(value))) != prompts:
            raise refuse_value(name, f"one entry for each of {prompts} prompts, not {given}")


def _check_keys(key: str | list[str], fields: Object, prompt: Raw, kind: Kind) -> None:
    """A list of cache keys has one for each prompt of a batch. Raises: RequestError 400."""
    if isinstance(key, str):
        return
    param = next(
        (name for name in CLIENT_FIELDS if bytes(fields.get(name, b"")).startswith(b"[")), "extra_key"
    )
    if kind not in (Kind.COMPLETION, Kind.GENERATE) or not is_list_of_prompts(prompt):
        raise refuse_value(param, "a text, not a list: there is one prompt, not a list of prompts")
    if len(key) != (prompts := number_of_prompts(prompt)):
        raise refuse_value(param, f"one text for each of {prompts} prompts, not {len(key)}")


def _choices(params: Object, names: tuple[str, ...] = ("n", "best_of")) -> int:
    """The number of choices that one set of sampling parameters asks for."""
    asked = [_CHOICES.decode(params[name]) for name in names if name in params]
    return max((number for number in asked if number is not None), default=1)


def _tag(rid: str, key: str, own: dict[str, str | float]) -> RequestTag:
    return RequestTag(rid=rid, extra_key=key, custom_params=own)


def check_model(model: str | None, known: frozenset[str]) -> None:
    """Raises: RequestError 404 if the client named a model that is not served here."""
    if model is not None and model not in known:
        raise RequestError(
            f"the model `{model[:80]}` is not served here; known are {', '.join(sorted(known))}",
            status=404,
            code="model_not_found",
            param="model",
        )
