"""`sampling_params` of /generate: one object, or one for each prompt of a batch."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from pdmuxd.daemon.gateway.contract.fields import check_known
from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.refusals import check_field
from pdmuxd.daemon.gateway.contract.values import Check, Object, decoder

_OBJECT = decoder(Object | None)
_OBJECTS = decoder(list[Object])


def each_of(value: Raw) -> list[tuple[str, Object]]:
    """The objects, each with its name; of null, an empty one."""
    if bytes(memoryview(value)[:1]) == b"[":
        given = check_field("sampling_params", value, _OBJECTS)
        return [(f"sampling_params[{i}]", params) for i, params in enumerate(given)]
    return [("sampling_params", check_field("sampling_params", value, _OBJECT) or {})]


def checked_of_each(table: Mapping[str, Check], refused: Mapping[str, str]) -> Check:
    """A check of each object's fields."""

    def check(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - it names itself
        for name, params in each_of(value):
            check_known(params, table, limits, refused=refused, prefix=f"{name}.")

    return check


def rewritten(value: Raw | None, table: Mapping[str, Check], custom_params: Mapping[str, object]) -> Raw:
    """The same with known fields only, and our own parameters in each."""
    if value is None:
        return Raw(msgspec.json.encode({"custom_params": custom_params}))
    is_batch = bytes(memoryview(value)[:1]) == b"["
    kept = [
        {**{name: params[name] for name in params if name in table}, "custom_params": custom_params}
        for _, params in each_of(value)
    ]
    return Raw(msgspec.json.encode(kept if is_batch else kept[0]))
