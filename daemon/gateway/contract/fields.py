"""Reads a body as its table says: what is wrong is refused by name, what is not known is left out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.refusals import refuse_field
from pdmuxd.daemon.gateway.contract.values import Check, Object, decoder

_NULL = b"null"
_BODY = decoder(Object)
_NOTHING = (b"null", b"false", b"[]", b"{}", b'""', b"0", b"-1")
"""Values with which clients say that they do not ask for something."""


def parse_body(body: bytes) -> Object:
    """The fields of a JSON object, not parsed further. Raises: RequestError 400."""
    try:
        if not body.isascii():
            body.decode()
        fields: Object = _BODY.decode(body)
    except msgspec.ValidationError:
        raise refuse_field("the body must be a JSON object", code="not_an_object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse_field(f"the body is not JSON: {error}", code="invalid_json") from None
    return fields


def require(fields: Object, names: tuple[str, ...]) -> None:
    """Raises: RequestError 400 naming the first of `names` that is missing."""
    for name in names:
        if name not in fields:
            raise refuse_field(f"the field `{name}` is missing", param=name, code="missing_field")


def check_known(
    fields: Object,
    table: Mapping[str, Check],
    limits: Limits,
    *,
    refused: Mapping[str, str] | None = None,
    prefix: str = "",
) -> Object:
    """The fields that the table has, checked; one that asks for what is not served is refused.

    One that is null and may be is left out: to clients the two are the same, to SGLang not always (`n`).

    Raises: RequestError 400 naming the field.
    """
    why_not = refused or {}
    known: Object = {}
    for name, value in fields.items():
        check = table.get(name)
        if check is not None:
            check(prefix + name, value, limits)
            if bytes(memoryview(value)[:5]) != _NULL:
                known[name] = value
        elif name in why_not and bytes(value) not in _NOTHING:
            raise refuse_field(
                f"`{prefix}{name}` is not supported: {why_not[name]}",
                param=prefix + name,
                code="unsupported",
            )
    return known
