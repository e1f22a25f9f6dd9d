"""Tenants and their API keys over REST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Self, cast

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.limit_bodies import LimitOut, limits_out
from pdmuxd.controlplane.api.pages import PAGE_MAX, link_next
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.slos import SLO_EXAMPLE, SLO_OUT_EXAMPLE, SloIn, SloOut, has_reached
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.tenant_fields import (
    ALLOWED,
    DEFAULT_MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_RANGE,
    MAX_MODEL_ALIASES,
    MAX_WAIT_RANGE_MS,
    MODEL_ALIAS,
    NAME,
    NAME_ALLOWED,
    NAME_MAX,
    TBT_COST_RANGE,
    WEIGHT_RANGE,
    TenantChanges,
)
from pdmuxd.controlplane.tenants.tenants import Tenant, TenantFilter
from pdmuxd.engine.core.slo import (
    DEFAULT_LATE_ACTION,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_SLO,
    DEFAULT_WEIGHT,
    LateAction,
    PriorityClass,
)

_MAX_IN_FLIGHT = "Requests of this tenant that may be open at once; more are answered with 429."
_LOW, _HIGH = MAX_IN_FLIGHT_RANGE
_ENABLED = "Whether its keys work; those of a disabled tenant are answered with 403."


_CACHE_GROUP = (
    "Tenants of one group share the prefix cache: each can tell from its latency and `cached_tokens` what "
    "the others have sent. Null: the tenant shares with nobody."
)
_PRIORITY_CLASS = (
    "Requests of a class go before those of the next: interactive, standard, batch. Batch fills what the "
    "others leave."
)
_WEIGHT = (
    "The tenant's part of what is shared, in relation to the weights of the others that are active: prefill "
    "tokens within its class, and places in flight on the node."
)
_MAX_WAIT = "The longest that a request may wait in the queue. Null: as long as the engine lets any wait."
_LATE_ACTION = (
    "What becomes of a request whose TTFT target cannot be met any more: it is served late, or refused at "
    "once with `Retry-After`."
)
_COUNT_CACHED = (
    "Whether limits of tokens count those that were found in the prefix cache. By default not: they cost "
    "next to no prefill."
)
_TBT_COST = (
    "The most that its TBT target may cost: a share of everybody's prefill time (`/what-if/tbt-costs`). "
    "While it costs more, steps are planned for the others' strictest target, and its own gaps may be late. "
    "Null: any share."
)
_MODEL_ALIASES = (
    "Other names of the served model in its requests, such as `gpt-4o`; with `*` at the end all that begin "
    "so, such as `claude-*`. Answers name the served model."
)
_Aliases = Annotated[
    tuple[Annotated[str, Field(strict=True, pattern=f"^{MODEL_ALIAS}$")], ...],
    Field(max_length=MAX_MODEL_ALIASES, description=_MODEL_ALIASES),
]
_LOW_COST, _HIGH_COST = TBT_COST_RANGE
_LOW_WEIGHT, _HIGH_WEIGHT = WEIGHT_RANGE
_LOW_WAIT, _HIGH_WAIT = MAX_WAIT_RANGE_MS


class TenantFields(Body):
    """What a tenant may be given; what is left out gets its default."""

    allowed: ClassVar[Mapping[str, str]] = ALLOWED

    slo: SloIn | None = Field(None, description="Its targets. Null or absent: the default targets.")
    max_in_flight: int = Field(
        DEFAULT_MAX_IN_FLIGHT, strict=True, ge=_LOW, le=_HIGH, description=_MAX_IN_FLIGHT
    )
    cache_group: str | None = Field(None, strict=True, pattern=f"^{NAME.pattern}$", description=_CACHE_GROUP)
    priority_class: PriorityClass = Field(DEFAULT_PRIORITY_CLASS, description=_PRIORITY_CLASS)
    weight: float = Field(
        DEFAULT_WEIGHT,
        strict=True,
        ge=_LOW_WEIGHT,
        le=_HIGH_WEIGHT,
        allow_inf_nan=False,
        description=_WEIGHT,
    )
    max_wait_ms: int | None = Field(None, strict=True, ge=_LOW_WAIT, le=_HIGH_WAIT, description=_MAX_WAIT)
    late_action: LateAction = Field(DEFAULT_LATE_ACTION, description=_LATE_ACTION)
    count_cached_tokens: bool = Field(False, strict=True, description=_COUNT_CACHED)
    max_tbt_cost_ratio: float | None = Field(
        None, strict=True, ge=_LOW_COST, le=_HIGH_COST, allow_inf_nan=False, description=_TBT_COST
    )
    model_aliases: _Aliases = ()


class _Named(Body):
    name: str = Field(strict=True, pattern=f"^{NAME.pattern}$", description=NAME_ALLOWED)


class TenantIn(TenantFields, _Named):
    """A new tenant; without `slo` it gets the default targets."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "chat", "slo": SLO_EXAMPLE, "max_in_flight": 64}]}
    )


class TenantPatch(Body):
    """What is to change; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": False}]})
    allowed: ClassVar[Mapping[str, str]] = ALLOWED

    enabled: bool | None = Field(None, strict=True, description=_ENABLED)
    max_in_flight: int | None = Field(None, strict=True, ge=_LOW, le=_HIGH, description=_MAX_IN_FLIGHT)
    cache_group: str | None = Field(None, strict=True, pattern=f"^{NAME.pattern}$", description=_CACHE_GROUP)
    priority_class: PriorityClass | None = Field(None, description=_PRIORITY_CLASS)
    weight: float | None = Field(
        None, strict=True, ge=_LOW_WEIGHT, le=_HIGH_WEIGHT, allow_inf_nan=False, description=_WEIGHT
    )
    max_wait_ms: int | None = Field(None, strict=True, ge=_LOW_WAIT, le=_HIGH_WAIT, description=_MAX_WAIT)
    late_action: LateAction | None = Field(None, description=_LATE_ACTION)
    count_cached_tokens: bool | None = Field(None, strict=True, description=_COUNT_CACHED)
    max_tbt_cost_ratio: float | None = Field(
        None, strict=True, ge=_LOW_COST, le=_HIGH_COST, allow_inf_nan=False, description=_TBT_COST
    )
    model_aliases: _Aliases | None = Field(None, description=_MODEL_ALIASES)


class TenantOut(BaseModel):
    """A tenant with its present targets."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "chat",
                    "enabled": True,
                    "max_in_flight": 64,
                    "cache_group": "assistants",
                    "priority_class": "interactive",
                    "weight": 2.0,
                    "max_wait_ms": 20000,
                    "late_action": "refuse",
                    "count_cached_tokens": False,
                    "max_tbt_cost_ratio": 0.1,
                    "model_aliases": ["claude-*", "gpt-4o"],
                    "limits": {"requests_per_min": {"value": 600, "action": "wait"}},
                    "slo": SLO_OUT_EXAMPLE,
                    "created_at": "2026-01-31T12:00:00Z",
                    "version": 17,
                }
            ]
        }
    )

    name: str
    enabled: bool = Field(description=_ENABLED)
    max_in_flight: int = Field(description=_MAX_IN_FLIGHT)
    cache_group: str | None = Field(description=_CACHE_GROUP)
    priority_class: PriorityClass = Field(description=_PRIORITY_CLASS)
    weight: float = Field(description=_WEIGHT)
    max_wait_ms: int | None = Field(description=_MAX_WAIT)
    late_action: LateAction = Field(description=_LATE_ACTION)
    count_cached_tokens: bool = Field(description=_COUNT_CACHED)
    max_tbt_cost_ratio: float | None = Field(description=_TBT_COST)
    model_aliases: list[str] = Field(description=_MODEL_ALIASES)
    limits: dict[str, LimitOut] = Field(description="By name; `/limits` also tells what of them is used.")
    slo: SloOut
    created_at: datetime
    version: int = Field(
        description="The settings version of its last change, targets included; also the ETag."
    )

    @classmethod
    def of(cls, tenant: Tenant, status: EngineStatus) -> Self:
        return cls(
            name=tenant.name,
            enabled=tenant.enabled,
            max_in_flight=tenant.max_in_flight,
            cache_group=tenant.cache_group,
            priority_class=tenant.priority_class,
            weight=tenant.weight,
            max_wait_ms=tenant.max_wait_ms,
            late_action=tenant.late_action,
            count_cached_tokens=tenant.count_cached_tokens,
            max_tbt_cost_ratio=tenant.max_tbt_cost_ratio,
            model_aliases=list(tenant.model_aliases),
            limits=limits_out(tenant.limits),
            slo=SloOut.of(tenant.revision, in_force=has_reached(tenant.revision, status)),
            created_at=tenant.created_at,
            version=tenant.version,
        )


def _changes(body: TenantIn | TenantPatch) -> TenantChanges:
    """What the client sent: null in a field is not the same as leaving it out."""
    return cast(
        TenantChanges, body.model_dump(exclude_unset=True, include=set(TenantChanges.__annotations__))
    )


def tenant_routes(control_plane: ControlPlane, engine_status: Callable[[], EngineStatus]) -> APIRouter:
    """The routes under `/tenants`."""
    router = admin_router(prefix="/tenants", tags=["tenants"])

    def answer(tenant: Tenant, response: Response) -> TenantOut:
        tag(response, tenant.version)
        return TenantOut.of(tenant, engine_status())

    @router.get("", responses=documented())
    def list_tenants(
        request: Request,
        response: Response,
        after: Annotated[str, Query(description="Go on behind this name.")] = "",
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
        q: Annotated[
            str | None, Query(max_length=NAME_MAX, description="Only names that have this in them.")
        ] = None,
        priority_class: Annotated[PriorityClass | None, Query(alias="class")] = None,
        enabled: Annotated[bool | None, Query(description="Only those that are enabled, or not.")] = None,
    ) -> list[TenantOut]:
        """List tenants by name. `Link` leads to the next page."""
        status = engine_status()
        wanted = TenantFilter(part=q, priority_class=priority_class, enabled=enabled)
        found = control_plane.list_tenants(after=after, limit=limit, wanted=wanted)
        link_next(request, response, found[-1].name if len(found) == limit else None)
        return [TenantOut.of(tenant, status) for tenant in found]

    @router.post("", status_code=201, responses=documented(409))
    def create_tenant(body: TenantIn, response: Response) -> TenantOut:
        """Create a tenant. It has no API key yet: issue one."""
        slo = DEFAULT_SLO if body.slo is None else body.slo.to_core()
        tenant = control_plane.create_tenant(body.name, slo, **_changes(body))
        response.headers["Location"] = f"/api/v1/tenants/{tenant.name}"
        return answer(tenant, response)

    @router.get("/{name}", responses=documented(404))
    def get_tenant(name: str, response: Response) -> TenantOut:
        """Show one tenant."""
        return answer(control_plane.get_tenant(name), response)

    @router.patch("/{name}", responses=documented(404, 412))
    def update_tenant(
        name: str, body: TenantPatch, response: Response, if_match: IfMatch = None
    ) -> TenantOut:
        """Change whether it is enabled, its limit and share, with whom it shares the cache."""
        expected = expected_version(if_match)
        tenant = control_plane.update_tenant(name, expected_version=expected, **_changes(body))
        return answer(tenant, response)

    @router.delete("/{name}", status_code=204, responses=documented(404, 412))
    def delete_tenant(name: str, if_match: IfMatch = None) -> None:
        """Delete a tenant with its keys and the history of its targets. Requests in flight finish."""
        control_plane.delete_tenant(name, expected_version=expected_version(if_match))

    return router
