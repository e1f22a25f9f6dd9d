"""All that operators set as one document: read, compared and put in force as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.config_bodies import (
    EXAMPLE,
    ConfigError,
    Fault,
    document_of,
    json_schema,
    read_config,
    unknown_tenant,
)
from pdmuxd.controlplane.api.etags import Force, IfMatch, expected_version, tag
from pdmuxd.controlplane.api.long_lists import with_items
from pdmuxd.controlplane.api.outlooks import OutlookOut
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.node.scheduling import check_scheduling
from pdmuxd.controlplane.outlook.config_preview import Edit, preview_edits
from pdmuxd.controlplane.outlook.slo_preview import Preview
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.config_plan import (
    Action,
    Config,
    Difference,
    Plan,
    TenantChange,
    UnknownTenantError,
    Value,
    in_words,
)
from pdmuxd.controlplane.services.config_service import Planned
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import InvalidValueError, StaleVersionError

MOST_UNMANAGED = 100
_ATTEMPTS = 5
"""Changes of others that may come between a plan and its execution, one after the other."""
_JSON = "application/json"


class ConfigDifferenceOut(BaseModel):
    """One field that becomes another."""

    field: str = Field(examples=["slo.tbt_ms"], description="A field within another is written with a point.")
    before: Value = Field(examples=[40.0], description="In the unit of the field; null where there was none.")
    after: Value = Field(examples=[30.0], description="In the unit of the field; null where there is none.")


class ConfigChangeOut(BaseModel):
    """One thing that does not stay as it is."""

    kind: Literal["tenant", "policy", "prices"] = Field(examples=["tenant"], description="What it is.")
    name: str = Field(examples=["chat"], description="The tenant's name; `policy` for the policy.")
    action: Action = Field(examples=["change"], description="What is done to it.")
    text: str = Field(examples=["change tenant chat: slo.tbt_ms 40 -> 30"], description="All of it in words.")
    fields: list[ConfigDifferenceOut] = Field(
        description="What differs; of what is created or deleted, nothing."
    )


class ConfigAppliedOut(BaseModel):
    """What was changed, or with `dry_run` would be."""

    settings_version: int = Field(
        examples=[18], description="The settings version that holds after the call; also the ETag."
    )
    dry_run: bool = Field(examples=[False], description="Whether nothing was changed because that was asked.")
    changed: bool = Field(examples=[True], description="Whether anything differs from what was stored.")
    summary: str = Field(examples=["1 tenant changed"], description="All of it in a line.")
    changes: list[ConfigChangeOut] = Field(description="Tenants by name, then the policy, then the prices.")
    unmanaged: int = Field(
        examples=[2], description="How many tenants the document does not name; they stay, unless pruned."
    )
    unmanaged_names: list[str] = Field(
        examples=[["old-demo"]], description=f"The first {MOST_UNMANAGED} of them."
    )
    outlook: OutlookOut | None = Field(
        description="What changed targets would give, by the policy that is in force now. Null where no "
        "targets of an existing tenant change, or no daemon runs that could predict."
    )


class ConfigOut(BaseModel):
    """All that operators set. What `PUT` takes: sent back, it changes nothing."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    tenants: dict[str, Any] = Field(description="By name: what `PUT` takes of each, all fields.")
    policy: dict[str, Any] = Field(description="What `PUT /policy` takes.")
    prices: dict[str, Any] = Field(description="What `PUT /prices` takes.")


def config_routes(control_plane: ControlPlane, telemetry: Telemetry, predictors: Predictors) -> APIRouter:
    """`/config`."""
    router = admin_router(prefix="/config", tags=["config"])

    def apply(
        body: bytes, *, prune: bool, dry_run: bool, force: bool, expected: int | None
    ) -> tuple[int, bytes]:
        """Runs in a worker thread from the body's first byte to the answer's last: a thousand tenants take
        longer than the event loop may be kept from its streams."""
        document = _decoded(body)
        wanted, keys = _checked(document, predictors, prune=prune), _key_counts(control_plane)
        for attempt in range(_ATTEMPTS):
            try:
                planned = control_plane.configs.plan(wanted, prune=prune, expected_version=expected)
            except UnknownTenantError as error:
                raise ConfigError([unknown_tenant(document, error)]) from error
            outlook = _outlook(planned.plan, telemetry, predictors)
            if outlook is not None and not force:
                outlook.require_feasible()
            if dry_run or planned.plan.is_empty:
                break
            try:
                # What was predicted is of this plan, so a change that came between makes another one.
                planned = control_plane.configs.apply(wanted, prune=prune, expected_version=planned.version)
                break
            except StaleVersionError:
                if expected is not None or attempt == _ATTEMPTS - 1:
                    raise
        answer = _answer(planned, outlook, keys, dry_run=dry_run)
        return planned.version, answer.model_dump_json(by_alias=True).encode()

    @router.get("", response_model=ConfigOut, responses=documented())
    def get_config() -> Response:
        """Show all that operators set, in the form that `PUT` takes. Keys and tokens are not in it."""
        version, config = control_plane.configs.current()
        document = document_of(config)
        tenants = (
            msgspec.json.encode(name) + b":" + msgspec.json.encode(tenant)
            for name, tenant in document["tenants"].items()
        )
        head = msgspec.json.encode(document | {"tenants": {}})
        response = Response(with_items(head, "tenants", tenants), media_type=_JSON)
        tag(response, version)
        return response

    @router.get("/schema", responses=documented())
    def get_config_schema() -> dict[str, Any]:
        """Show the form of the document as JSON Schema, for editors and checks."""
        return json_schema()

    @router.put("", response_model=ConfigAppliedOut, responses=documented(409, 412), openapi_extra=_BODY)
    async def put_config(
        request: Request,
        prune: Annotated[
            bool, Query(description="Delete the tenants that the document does not name.")
        ] = False,
        dry_run: Annotated[bool, Query(description="Say what would change, and change nothing.")] = False,
        force: Force = False,
        if_match: IfMatch = None,
    ) -> Response:
        """Make tenants and policy as the document says, all of it or nothing. Sent twice, it changes nothing.

        A tenant that the document names becomes what it says: what it leaves out gets its default. Tenants
        that it does not name stay, unless pruned. One settings version, one entry in the audit.
        """
        version, content = await run_in_threadpool(
            partial(
                apply,
                await request.body(),
                prune=prune,
                dry_run=dry_run,
                force=force,
                expected=expected_version(if_match),
            )
        )
        response = Response(content, media_type=_JSON)
        tag(response, version)
        return response

    return router


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {_JSON: {"schema": {"$ref": "#/components/schemas/ConfigIn"}}},
    }
}


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidValueError("body", f"the body is not JSON that can be read: {error}") from error


def _checked(document: object, predictors: Predictors, *, prune: bool) -> Config:
    wanted = read_config(document)
    if prune and not wanted.tenants:
        raise InvalidValueError(
            "tenants", "tenants is empty; with prune, which deletes all others, name at least one"
        )
    if wanted.scheduling is None:
        return wanted
    predicting = predictors()
    try:
        scheduling = check_scheduling(wanted.scheduling, None if predicting is None else predicting.context)
    except InvalidValueError as error:
        raise ConfigError([Fault(path=("policy", error.field), text=str(error))]) from error
    return replace(wanted, scheduling=scheduling)


def _outlook(plan: Plan, telemetry: Telemetry, predictors: Predictors) -> Preview | None:
    edits = {
        one.name: Edit(current=one.before.slo, wanted=one.after.slo)
        for one in plan.tenants
        if one.before is not None and one.after is not None and one.differs("slo")
    }
    return preview_edits(edits, telemetry, predictors) if edits else None


def _key_counts(control_plane: ControlPlane) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for key in control_plane.directory.keys.values():
        counts[key.tenant] = counts.get(key.tenant, 0) + 1
    return counts


def _in_words(change: TenantChange, keys: int) -> str:
    if change.action == "delete":
        return f"delete tenant {change.name}, its history and its keys ({keys})"
    return f"{change.action} tenant {change.name}: {in_words(change.differences, change.action)}"


def _fields(differences: tuple[Difference, ...]) -> list[ConfigDifferenceOut]:
    return [ConfigDifferenceOut(field=one.field, before=one.before, after=one.after) for one in differences]


def _answer(
    planned: Planned, outlook: Preview | None, keys: Mapping[str, int], *, dry_run: bool
) -> ConfigAppliedOut:
    plan = planned.plan
    changes = [
        ConfigChangeOut(
            kind="tenant",
            name=one.name,
            action=one.action,
            text=_in_words(one, keys.get(one.name, 0)),
            fields=_fields(one.differences) if one.action == "change" else [],
        )
        for one in plan.tenants
    ]
    if plan.scheduling is not None:
        text = f"change the policy: {in_words(plan.scheduling_differences, 'change')}"
        changes.append(
            ConfigChangeOut(
                kind="policy",
                name="policy",
                action="change",
                text=text,
                fields=_fields(plan.scheduling_differences),
            )
        )
    if plan.prices is not None:
        text = f"change the prices: {in_words(plan.price_differences, 'change')}"
        fields = _fields(plan.price_differences)
        changes.append(
            ConfigChangeOut(kind="prices", name="prices", action="change", text=text, fields=fields)
        )
    return ConfigAppliedOut(
        settings_version=planned.version,
        dry_run=dry_run,
        changed=not plan.is_empty,
        summary=plan.summary(),
        changes=changes,
        unmanaged=len(plan.unmanaged),
        unmanaged_names=list(plan.unmanaged[:MOST_UNMANAGED]),
        outlook=None if outlook is None or outlook.policy is None else OutlookOut.of(outlook),
    )
