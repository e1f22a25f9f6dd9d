"""Turns the validator's findings into one line that a person can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdmuxd.daemon.process.redaction import mask_url
from pdmuxd.daemon.settings.keys import SECRET_KEYS, Key, all_keys
from pdmuxd.daemon.settings.layers import Layer
from pdmuxd.daemon.settings.values import NOT_ALLOWED

DEFAULT = "default"
_LONGEST_VALUE = 80


def explain(error: ValidationError, layers: Sequence[Layer]) -> str:
    """Name the first wrong key, its value, its origin and what is allowed; count the others."""
    found = error.errors(include_url=False)
    others = len(found) - 1
    more = f" (and {others} more wrong value{'s' if others > 1 else ''})" if others else ""
    return _line(found[0], layers) + more


def origins_of(layers: Iterable[Layer]) -> Mapping[str, str]:
    """Where each key's effective value comes from; the first layer that has a key wins."""
    origins = {key.name: DEFAULT for key in all_keys()}
    for layer in reversed(tuple(layers)):
        origins.update(layer.origins)
    return origins


def shown(key: str, value: object) -> str:
    """A value as TOML would write it, on one line, without credentials."""
    if value is None:
        return "unset"
    if key in SECRET_KEYS:
        value = mask_url(str(value))
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _line(found: ErrorDetails, layers: Sequence[Layer]) -> str:
    context = found.get("ctx", {})
    ours = found["type"] == NOT_ALLOWED
    name = (context.get("key") if ours else None) or ".".join(map(str, found["loc"]))
    key = next(key for key in all_keys() if key.name == name)
    text = context["text"] if ours else f"allowed is {key.allowed}"
    return f"{name} is {shown(name, _raw(key, layers))} ({origins_of(layers)[name]}): {text}"


def _raw(key: Key, layers: Sequence[Layer]) -> Any:  # noqa: ANN401 - whatever was written
    return next((layer.values[key.name] for layer in layers if key.name in layer.values), key.default)
