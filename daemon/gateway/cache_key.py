"""The key under which the engine's prefix cache keeps a request's prompt.

A cache that all tenants share answers a question that nobody may ask: whether another has sent this very
prompt, since `cached_tokens` and the time to first token tell. SGLang finds a prefix only among requests of
the same `extra_key`; so the gateway puts the tenant, or the group that an operator made, in front of it.
What a client itself sends as `extra_key` or `cache_salt` divides its own cache further. Names hold no slash,
so that no value of a client makes the key of one tenant into that of another.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from pdmuxd.controlplane.directory import TenantRecord
from pdmuxd.engine.core.errors import RequestError

CLIENT_FIELDS = ("cache_salt", "extra_key")
_FORM = msgspec.json.Decoder(str | list[str] | None)
_MAX_CHARACTERS = 1024


def namespace_of(tenant: TenantRecord) -> str:
    """What every cache key of the tenant begins with, and nobody else's."""
    return f"group/{tenant.cache_group}/" if tenant.cache_group is not None else f"tenant/{tenant.name}/"


def cache_key(fields: dict[str, Raw], namespace: str) -> str | list[str]:
    """Take the client's own fields out of `fields`; the key for the engine, a list if it is one per prompt.

    Raises: RequestError 422 naming the field that is wrong.
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
    return RequestError(f"the field `{name}` {what}", status=422, code="invalid_value", param=name)
