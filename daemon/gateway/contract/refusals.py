"""How a request is refused for its content: status 400, and the field by its name."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from pdmuxd.engine.core.errors import RequestError


def refuse_field(message: str, *, param: str | None = None, code: str = "invalid_value") -> RequestError:
    """The error of a request that is refused for its content."""
    return RequestError(message, status=400, code=code, param=param)


def refuse_value(param: str, allowed: str) -> RequestError:
    """The error of a field whose value is not what is `allowed`."""
    return refuse_field(f"the field `{param}` is wrong: expected {allowed}", param=param)


def check_field(name: str, value: Raw, decoder: msgspec.json.Decoder[Any]) -> Any:  # noqa: ANN401 - as decoded
    """Decode one field. Raises: RequestError 400 naming it, or what in it is wrong."""
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
