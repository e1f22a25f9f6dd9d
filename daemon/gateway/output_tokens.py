"""How many tokens an answer may have: what the body names, or what a limit sets where it names nothing.

Every spelling that an engine obeys counts, and of several the largest, since the engine says which one wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.engine.core.errors import RequestError

_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.CHAT: ("max_tokens", "max_completion_tokens"),
    Kind.COMPLETION: ("max_tokens",),
    Kind.RESPONSES: ("max_output_tokens",),
    Kind.MESSAGES: ("max_tokens",),
}
_SAMPLING_PARAMS = "sampling_params"
_IN_SAMPLING = ("max_new_tokens",)
_NUMBER = msgspec.json.Decoder(int)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])


def bound_output(kind: Kind, fields: dict[str, Raw], most: int | None) -> int | None:
    """The most tokens of one answer; None if nothing but the context bounds it.

    Where `most` is given and the body names no number, it is written into `fields`, which were checked.
    Raises: RequestError 400 if the body names more than `most`.
    """
    if kind is Kind.SCORE:
        return 1  # it is read where the next token would be chosen
    if kind is not Kind.GENERATE:
        return _bound(fields, _FIELDS[kind], most, prefix="")
    value = bytes(fields.get(_SAMPLING_PARAMS, Raw(b"null")))
    if value.startswith(b"["):
        each = _OBJECTS.decode(value)
        bounds = [
            _bound(one, _IN_SAMPLING, most, prefix=f"sampling_params[{i}].") for i, one in enumerate(each)
        ]
        fields[_SAMPLING_PARAMS] = Raw(msgspec.json.encode(each))
        return None if None in bounds else max((one for one in bounds if one is not None), default=None)
    params = _OBJECT.decode(value) if value != b"null" else {}
    bound = _bound(params, _IN_SAMPLING, most, prefix="sampling_params.")
    fields[_SAMPLING_PARAMS] = Raw(msgspec.json.encode(params))
    return bound


def _bound(fields: dict[str, Raw], names: Iterable[str], most: int | None, *, prefix: str) -> int | None:
    named = {name: number for name in names if (number := _number(fields.get(name))) is not None}
    for name, number in named.items():
        if most is not None and number > most:
            raise RequestError(
                f"`{prefix}{name}` is {number}; max_output_tokens of the tenant or key allows {most}",
                status=400,
                code="max_output_tokens",
                param=prefix + name,
            )
    if named:
        return max(named.values())
    if most is not None:
        fields[next(iter(names))] = Raw(str(most).encode())
    return most


def _number(value: Raw | None) -> int | None:
    """A number above 0; anything else is refused or ignored by the engine, and bounds nothing."""
    try:
        number = None if value is None else _NUMBER.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None
    return number if number is not None and number > 0 else None
