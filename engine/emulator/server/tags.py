"""The tag that the gateway sends with requests whose bodies have no field for it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from starlette.requests import Request

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.emulator.server.bodies import DEFAULT_TENANT, CustomParams
from pdmuxd.engine.link.request_tag import TAG_HEADER, decode_tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """The tenant whose request it is, its id, and where its prompt is cached."""

    rid: str | None = None
    tenant: str = DEFAULT_TENANT
    salt: str = ""
    targets: RequestTargets | None = None
    direct_tokens: bool = False
    """Whether the daemon wants the tokens of its answer."""


def tag_of(request: Request) -> Tag:
    """The tag of a request, or that of one that nobody has tagged. Raises: RequestError 400."""
    header = request.headers.get(TAG_HEADER)
    if header is None:
        return Tag()
    given = decode_tag(header)
    try:
        custom = msgspec.convert(given.custom_params, CustomParams)
    except msgspec.ValidationError as error:
        raise RequestError(
            f"the header {TAG_HEADER} is wrong: {error}", status=400, code="invalid_tag"
        ) from None
    return Tag(
        rid=given.rid,
        tenant=custom.pdmuxd_tenant or DEFAULT_TENANT,
        salt=given.extra_key,
        targets=custom.targets,
        direct_tokens=bool(custom.pdmuxd_tokens),
    )
