"""Configurations as JSON: what may be sent, what is wrong with it, and how what is stored is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, ValidationError
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.limit_bodies import LimitsPatch
from pdmuxd.controlplane.api.policy import PolicyIn
from pdmuxd.controlplane.api.prices import PricesIn, PricesOut
from pdmuxd.controlplane.api.slos import SLO_EXAMPLE
from pdmuxd.controlplane.api.tenants import TenantFields
from pdmuxd.controlplane.services.config_plan import Config, UnknownTenantError, targets_ms
from pdmuxd.controlplane.tenants.limit_values import check_limit
from pdmuxd.controlplane.tenants.prices import PriceList
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.controlplane.tenants.tenant_fields import (
    NAME,
    NAME_ALLOWED,
    TenantChanges,
)
from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.core.slo import DEFAULT_SLO

MOST_FAULTS = 20
"""So many are named; a file with more is mended in steps."""
EXAMPLE: JsonDict = {
    "tenants": {
        "chat": {
            "slo": SLO_EXAMPLE,
            "priority_class": "interactive",
            "weight": 2.0,
            "limits": {"tokens_per_day": {"value": 10_000_000}},
        }
    },
    "policy": {"policy": "auto"},
    "prices": {"currency": "EUR", "prices": [{"input": "0.15", "cached": "0.03", "output": "0.6"}]},
}
Path = tuple[str, ...]


class ConfigTenantIn(TenantFields):
    """A tenant as it is to be: all of it, so what is left out gets its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"slo": SLO_EXAMPLE, "weight": 2.0}]})

    enabled: bool = Field(True, strict=True, description="Whether its keys work.")
    limits: LimitsPatch | None = Field(
        None, description="Of all its keys together. What is null or absent is no limit."
    )

    def record(self, name: str) -> TenantRecord:
        """The tenant as it is stored. Raises: InvalidValueError for a limit out of its range."""
        slo = DEFAULT_SLO if self.slo is None else self.slo.to_core()
        changes = {} if self.limits is None else self.limits.changes()
        limits = tuple(check_limit(one, of_key=False) for one in changes.values() if one is not None)
        fields = {each: getattr(self, each) for each in TenantChanges.__annotations__}
        return TenantRecord(name=name, slo=slo, slo_version=0, limits=limits, **fields)


_Name = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]


class ConfigIn(Body):
    """All that operators set, without keys and tokens: of those only hashes are stored."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    tenants: dict[_Name, ConfigTenantIn | None] | None = Field(
        None, description=f"By name: {NAME_ALLOWED}. Tenants that are not named stay, unless pruned."
    )
    policy: PolicyIn | None = Field(
        None, description="The policy, its splits and its shadow. Null or absent: they stay."
    )
    prices: PricesIn | None = Field(
        None,
        description="The whole price list; of a tenant that it names there must be one. Null or "
        "absent: it stays.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is not allowed, and where it stands."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.text}" if self.path else self.text


class ConfigError(InvalidValueError):
    """A configuration that is not allowed; `faults` are all that is wrong with it, up to MOST_FAULTS."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(".".join(self.faults[0].path) or "body", "; ".join(map(str, self.faults)))


def read_config(data: object) -> Config:
    """Turn JSON into a configuration. Raises: ConfigError."""
    try:
        body = ConfigIn.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)[:MOST_FAULTS]
        raise ConfigError(_fault(one) for one in errors) from None
    tenants, faults = {}, []
    for name, tenant in (body.tenants or {}).items():
        try:
            tenants[name] = (tenant or ConfigTenantIn()).record(name)
        except InvalidValueError as error:
            faults.append(Fault(path=("tenants", name, "limits", error.field), text=str(error)))
    if faults:
        raise ConfigError(faults[:MOST_FAULTS])
    return Config(
        tenants=tenants,
        scheduling=None if body.policy is None else body.policy.to_scheduling(),
        prices=None if body.prices is None else _prices(body.prices),
    )


def document_of(config: Config) -> dict[str, Any]:
    """The same the other way round: `read_config` makes an equal configuration of it."""
    scheduling, document = config.scheduling, dict[str, Any]()
    document["tenants"] = {name: _tenant(config.tenants[name]) for name in sorted(config.tenants)}
    if scheduling is not None:
        pairs = scheduling.partitions
        document["policy"] = {
            "policy": scheduling.policy,
            "partitions": None
            if pairs is None
            else [{"prefill_sms": prefill, "decode_sms": decode} for prefill, decode in pairs],
            "shadow": scheduling.shadow,
        }
    if config.prices is not None:
        found = PricesOut.of(config.prices).model_dump()
        document["prices"] = {"currency": found["currency"], "prices": found["prices"]}
    return document


def _prices(wanted: PricesIn) -> PriceList:
    """Raises: ConfigError with the place of the first price that is not allowed."""
    for number, price in enumerate(wanted.prices):
        try:
            price.to_price()
        except InvalidValueError as error:
            path = ("prices", "prices", str(number), error.field)
            raise ConfigError([Fault(path=path, text=str(error))]) from None
    try:
        return wanted.to_list()
    except InvalidValueError as error:
        raise ConfigError([Fault(path=("prices", error.field), text=str(error))]) from None


def unknown_tenant(document: Any, error: UnknownTenantError) -> Fault:  # noqa: ANN401 - JSON
    """Where a document that was read names the tenant that there is not, in its prices."""
    lines = document["prices"]["prices"]
    number = next(index for index, line in enumerate(lines) if line.get("tenant") == error.tenant)
    return Fault(path=("prices", "prices", str(number), "tenant"), text=str(error))


def add_schema(document: dict[str, Any]) -> None:
    """Put the form into an OpenAPI document, which knows no body that a route reads by itself."""
    schema = ConfigIn.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = document["components"]["schemas"]
    schemas.update(schema.pop("$defs"))
    schemas[ConfigIn.__name__] = schema


def json_schema() -> dict[str, Any]:
    """The schema for editors, in the form of JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ConfigIn.model_json_schema(),
        "title": "pdmuxd's tenants, policy and prices",
    }


def _tenant(record: TenantRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"slo": targets_ms(record.slo)}
    fields |= {name: getattr(record, name) for name in TenantChanges.__annotations__}
    return fields | {
        "limits": {one.name: {"value": one.value, "action": one.action} for one in record.limits}
    }


def _fault(found: Mapping[str, Any]) -> Fault:
    """Put an error into words, whatever of the library's errors it is."""
    context = found.get("ctx", {})
    path = [str(part) for part in found["loc"]]
    if path and path[-1] == "[key]":
        return Fault(
            path=tuple(path[:-1]),
            text=f"the name of a tenant is {_shown(path[-2])}; allowed are {NAME_ALLOWED}",
        )
    if "fields" in context:
        return Fault(
            path=tuple(path),
            text=f"{_shown(found['input'])} is not allowed; allowed are the fields {context['fields']}",
        )
    named = context.get("field")
    if named is not None and path[-1:] != [named]:
        path.append(str(named))
    if named is not None:
        return Fault(path=tuple(path), text=str(found["msg"]))
    if found["type"] == "dict_type":
        return Fault(path=tuple(path), text="allowed are names, each with its fields")
    return Fault(path=tuple(path), text=f"{_shown(found.get('input'))}: {found['msg']}")


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:60]
