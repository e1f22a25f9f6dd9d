"""Requests of APIs whose bodies have no field for a tenant: the gateway says it in a header.

SGLang makes one kind of request of every API's body, and hands it to its tokenizer manager together with the
HTTP request that it came with. There the tag is put where other requests have it, and a tenant's request
gets the adapter of the tenant's name, if there is one.
"""

from __future__ import annotations

from typing import Any, cast

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.link.request_tag import TAG_HEADER, TENANT_PARAM, decode_tag
from pdmuxd.engine.sglang.api.types.process import GenerateRequest, HttpRequest, TokenizerManager


def tag(
    manager: TokenizerManager,
    request: GenerateRequest,
    http_request: HttpRequest | None = None,
) -> None:
    """Give a request the tag that came with it, if any did, and its adapter, before it is taken up.

    Raises: ValueError, which SGLang answers by 400, if the tag is malformed.
    """
    header = None if http_request is None else http_request.headers.get(TAG_HEADER)
    if header is not None:
        _put_tag(request, header)
    if manager.lora_ref_cache:
        tenant = _tenant(request)
        request.lora_path = tenant if tenant in manager.lora_ref_cache else None


def _put_tag(request: GenerateRequest, header: str) -> None:
    try:
        found = decode_tag(header)
    except RequestError as error:
        raise ValueError(str(error)) from None
    request.rid = found.rid
    request.extra_key = found.extra_key
    params: dict[str, Any] = request.sampling_params
    params["custom_params"] = {**(params.get("custom_params") or {}), **found.custom_params}


def _tenant(request: GenerateRequest) -> str | None:
    """The tenant that the gateway named; a batch is of one."""
    params = request.sampling_params
    first = next(iter(params), None) if isinstance(params, list) else params
    custom = (first or {}).get("custom_params") or {}
    return cast("str | None", custom.get(TENANT_PARAM))
