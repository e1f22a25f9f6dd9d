"""The key under which the engine's prefix cache keeps a request's prompt.

If all tenants shared one cache, each could find out whether another has sent the same prompt: `cached_tokens`
and the time to first token tell. SGLang finds a prefix only among requests with the same `extra_key`. So the
gateway puts the tenant's name, or its group's, in front of the key. What a client itself sends as `extra_key`
or `cache_salt` divides its own cache further. Names hold no slash, so no value from a client can turn one
tenant's key into another's.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.errors import RequestError

CLIENT_FIELDS = ("cache_salt", "extra_key")
_FORM = msgspec.json.Decoder(str | list[str] | None)
_MAX_CHARACTERS = 1024


def namespace_of(tenant: TenantRecord) -> str:
    """The beginning of every cache key of this tenant. No other tenant has the same one, unless both are in
    one group."""
    return f"group/{tenant.cache_group}/" if tenant.cache_group is not None else f"tenant/{tenant.name}/"


def cache_key(fields: dict[str, Raw], namespace: str) -> str | list[str]:
    """Take the client's own fields out of `fields`; the key for the engine, a list if it is one per prompt.

    Raises: RequestError 400 naming the field that is wrong.
    """
    keys: str | list[str] = namespace
    for name in CLIENT_FIELDS:
        value = _read(name, fields.pop(name, None))
        if isinstance(value, str) and isinstance(keys, str):
            keys += value
        elif isinstance(value, str):
            keys = [key + value for key in keys]
        elif isinstance(keys, str):
            keys = [keys + each for each in value]
        elif len(keys) == len(value):
            keys = [key + each for key, each in zip(keys, value, strict=True)]
        else:
            raise _refuse(name, f"has {len(value)} entries, and {CLIENT_FIELDS[0]} has {len(keys)}")
    return keys


def _read(name: str, value: Raw | None) -> str | list[str]:
    if value is None:
        return ""
    try:
        found: Any = _FORM.decode(value) or ""
    except (msgspec.DecodeError, RecursionError):
        raise _refuse(name, "is not a text, or a list of one text for each prompt") from None
    longest = len(found) if isinstance(found, str) else max(map(len, found))
    if longest > _MAX_CHARACTERS:
        raise _refuse(name, f"is longer than {_MAX_CHARACTERS} characters")
    return found  # type: ignore[no-any-return]


def _refuse(name: str, what: str) -> RequestError:
    return RequestError(f"the field `{name}` {what}", status=400, code="invalid_value", param=name)
