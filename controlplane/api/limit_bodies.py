"""Limits over REST: what may be sent, and what is answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.tenants.limit_values import (
    ACTIONS_ALLOWED,
    DEFAULT_ACTION,
    NAMES,
    RANGES,
    WHAT,
    Limit,
    LimitAction,
    LimitName,
)
from pdmuxd.controlplane.tenants.tenant_fields import in_words

_ACTION = (
    "What becomes of a request above the limit: it waits for its turn at the gateway, as long as its tenant "
    "lets requests wait (`max_wait_ms`, else 30 s), or is refused with 429 at once."
)
_EXAMPLE: JsonDict = {"value": 600, "action": "wait"}
_IN_FORCE_EXAMPLE: JsonDict = {**_EXAMPLE, "name": "requests_per_min", "of": "tenant", "used": 41}
_MOST = max(high for _, high in RANGES.values())


class LimitIn(Body):
    """A limit: its value, and what becomes of a request above it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})
    allowed: ClassVar[Mapping[str, str]] = {
        "value": "whole numbers above 0, up to what the limit allows",
        "action": ACTIONS_ALLOWED,
    }

    value: int = Field(strict=True, ge=1, le=_MOST, description="In the unit that the limit's name tells.")
    action: LimitAction = Field(DEFAULT_ACTION, description=_ACTION)


def _limit(name: LimitName) -> Any:  # noqa: ANN401 - as pydantic's Field
    return Field(None, description=f"{WHAT[name]} {in_words(RANGES[name])}; null: no limit.")


class LimitsPatch(Body):
    """Which limits change: null removes one, and what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "requests_per_min": {"value": 600, "action": "wait"},
                    "tokens_per_day": {"value": 10_000_000},
                }
            ]
        }
    )

    concurrency: LimitIn | None = _limit("concurrency")
    requests_per_min: LimitIn | None = _limit("requests_per_min")
    input_tokens_per_min: LimitIn | None = _limit("input_tokens_per_min")
    output_tokens_per_min: LimitIn | None = _limit("output_tokens_per_min")
    tokens_per_day: LimitIn | None = _limit("tokens_per_day")
    tokens_per_month: LimitIn | None = _limit("tokens_per_month")
    spend_cents_per_day: LimitIn | None = _limit("spend_cents_per_day")
    spend_cents_per_month: LimitIn | None = _limit("spend_cents_per_month")
    max_output_tokens: LimitIn | None = _limit("max_output_tokens")
    max_wait_ms: LimitIn | None = _limit("max_wait_ms")

    def changes(self) -> dict[LimitName, Limit | None]:
        given: dict[LimitName, LimitIn | None] = {
            name: getattr(self, name) for name in NAMES if name in self.model_fields_set
        }
        return {
            name: None if limit is None else Limit(name=name, value=limit.value, action=limit.action)
            for name, limit in given.items()
        }


class LimitOut(BaseModel):
    """One limit."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    value: int = Field(description="In the unit that the limit's name tells.")
    action: LimitAction = Field(description=_ACTION)


class LimitInForce(LimitOut):
    """One limit, and what of it is used."""

    model_config = ConfigDict(json_schema_extra={"examples": [_IN_FORCE_EXAMPLE]})

    name: LimitName
    of: str = Field(description="`tenant` or `key`: whose requests it counts.")
    used: int | None = Field(
        description="Of the window, day or month that it counts, with what requests in flight may use. "
        "Null where no daemon counts, and for `max_output_tokens` and `max_wait_ms`."
    )


class LimitsOut(BaseModel):
    """All limits that hold for the requests of a tenant or of a key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tenant": "chat",
                    "key_id": None,
                    "max_in_flight": 64,
                    "count_cached_tokens": False,
                    "limits": [_IN_FORCE_EXAMPLE],
                    "version": 17,
                }
            ]
        }
    )

    tenant: str
    key_id: str | None = Field(description="Null: of all keys of the tenant together.")
    max_in_flight: int = Field(description="Of the tenant; above it requests are refused.")
    count_cached_tokens: bool = Field(
        description="Of the tenant: whether tokens from the prefix cache count."
    )
    limits: list[LimitInForce]
    version: int = Field(description="The settings version of the last change; also the ETag.")


def limits_out(limits: Iterable[Limit]) -> dict[str, LimitOut]:
    """The limits by name."""
    return {limit.name: LimitOut(value=limit.value, action=limit.action) for limit in limits}


def in_force(limits: Iterable[Limit], of: str, used: Mapping[str, int] | None) -> list[LimitInForce]:
    """Each with its use, where something counts it."""
    return [
        LimitInForce(
            name=limit.name,
            of=of,
            value=limit.value,
            action=limit.action,
            used=None if used is None else used.get(limit.name),
        )
        for limit in limits
    ]
