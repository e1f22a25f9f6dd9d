"""Tenants and their API keys over REST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Self

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.pages import PAGE_MAX, link_next
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.slos import SLO_EXAMPLE, SLO_OUT_EXAMPLE, SloIn, SloOut, has_reached, in_words
from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.controlplane.status import EngineStatus
from pdmuxd.controlplane.tenants import DEFAULT_MAX_IN_FLIGHT, MAX_IN_FLIGHT_RANGE, NAME, NAME_ALLOWED, Tenant
from pdmuxd.engine.core.slo import DEFAULT_SLO

_MAX_IN_FLIGHT = "Requests of this tenant that may be open at once; more are answered with 429."
_LOW, _HIGH = MAX_IN_FLIGHT_RANGE
_ENABLED = "Whether its keys work; those of a disabled tenant are answered with 403."


_CACHE_GROUP = (
    "Tenants of one group share the prefix cache: each can tell from its latency and `cached_tokens` what "
    "the others have sent. Null: the tenant shares with nobody."
)
_CACHE_GROUP_ALLOWED = f"null, or {NAME_ALLOWED}"


class TenantIn(Body):
    """A new tenant; without `slo` it gets the default targets."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "chat", "slo": SLO_EXAMPLE, "max_in_flight": 64}]}
    )
    allowed: ClassVar[Mapping[str, str]] = {
        "name": NAME_ALLOWED,
        "max_in_flight": in_words(MAX_IN_FLIGHT_RANGE),
        "cache_group": _CACHE_GROUP_ALLOWED,
    }

    name: str = Field(strict=True, pattern=f"^{NAME.pattern}$", description=NAME_ALLOWED)
    slo: SloIn | None = None
    max_in_flight: int = Field(
        DEFAULT_MAX_IN_FLIGHT, strict=True, ge=_LOW, le=_HIGH, description=_MAX_IN_FLIGHT
    )
    cache_group: str | None = Field(None, strict=True, pattern=f"^{NAME.pattern}$", description=_CACHE_GROUP)


class TenantPatch(Body):
    """What is to change; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": False}]})
    allowed: ClassVar[Mapping[str, str]] = {
        "enabled": "true and false",
        "max_in_flight": in_words(MAX_IN_FLIGHT_RANGE),
        "cache_group": _CACHE_GROUP_ALLOWED,
    }

    enabled: bool | None = Field(None, strict=True, description=_ENABLED)
    max_in_flight: int | None = Field(None, strict=True, ge=_LOW, le=_HIGH, description=_MAX_IN_FLIGHT)
    cache_group: str | None = Field(None, strict=True, pattern=f"^{NAME.pattern}$", description=_CACHE_GROUP)


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
    slo: SloOut
    created_at: datetime
    version: int = Field(
        description="The settings version of its last change, targets included; also the ETag."
    )

    @classmethod
    def of(cls, tenant: Tenant, status: EngineStatus) -> Self:
        """Convert for the answer."""
        return cls(
            name=tenant.name,
            enabled=tenant.enabled,
            max_in_flight=tenant.max_in_flight,
            cache_group=tenant.cache_group,
            slo=SloOut.of(tenant.revision, in_force=has_reached(tenant.revision, status)),
            created_at=tenant.created_at,
            version=tenant.version,
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
    ) -> list[TenantOut]:
        """List tenants by name. `Link` leads to the next page."""
        status = engine_status()
        found = control_plane.list_tenants(after=after, limit=limit)
        link_next(request, response, found[-1].name if len(found) == limit else None)
        return [TenantOut.of(tenant, status) for tenant in found]

    @router.post("", status_code=201, responses=documented(409))
    def create_tenant(body: TenantIn, response: Response) -> TenantOut:
        """Create a tenant. It has no API key yet: issue one."""
        slo = DEFAULT_SLO if body.slo is None else body.slo.to_core()
        tenant = control_plane.create_tenant(body.name, slo, body.max_in_flight, cache_group=body.cache_group)
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
        """Change whether it is enabled, how many requests it may have open, with whom it shares the cache."""
        tenant = control_plane.update_tenant(
            name,
            enabled=body.enabled,
            max_in_flight=body.max_in_flight,
            cache_group=body.cache_group if "cache_group" in body.model_fields_set else False,
            expected_version=expected_version(if_match),
        )
        return answer(tenant, response)

    @router.delete("/{name}", status_code=204, responses=documented(404, 412))
    def delete_tenant(name: str, if_match: IfMatch = None) -> None:
        """Delete a tenant with its keys and the history of its targets. Requests in flight finish."""
        control_plane.delete_tenant(name, expected_version=expected_version(if_match))

    return router
