"""Limits of tenants and keys over REST, and what of them is used."""

from __future__ import annotations

from typing import Protocol

from fastapi import APIRouter, Request, Response

from pdmuxd.controlplane.api.access import own_tenant
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.limit_bodies import LimitsOut, LimitsPatch, in_force
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.tenants import Tenant


class LimitUse(Protocol):
    """What counts the use of limits; called from worker threads."""

    def of_tenant(self, tenant: str) -> dict[str, int] | None:
        """What all keys of the tenant have used, by limit; None if nothing counts."""

    def of_key(self, key_id: str, tenant: str) -> dict[str, int] | None:
        """The same of one key of it."""


class NothingCounts:
    """Counts nothing, without a daemon."""

    def of_tenant(self, tenant: str) -> dict[str, int] | None:  # noqa: ARG002
        return None

    def of_key(self, key_id: str, tenant: str) -> dict[str, int] | None:  # noqa: ARG002
        return None


def limit_routes(control_plane: ControlPlane, use: LimitUse) -> APIRouter:
    """The routes of limits, under their tenant or their key."""
    router = admin_router(tags=["limits"])
    limits = control_plane.limits

    def of_tenant(tenant: Tenant, response: Response) -> LimitsOut:
        tag(response, tenant.version)
        return LimitsOut(
            tenant=tenant.name,
            key_id=None,
            max_in_flight=tenant.max_in_flight,
            count_cached_tokens=tenant.count_cached_tokens,
            limits=in_force(tenant.limits, "tenant", use.of_tenant(tenant.name)),
            version=tenant.version,
        )

    def of_key(key_id: str, request: Request, response: Response) -> LimitsOut:
        row, tenant, record = limits.of_key(key_id, of_tenant=own_tenant(request))
        tag(response, row.settings_version)
        own = record.limits if record is not None else ()
        return LimitsOut(
            tenant=tenant.name,
            key_id=key_id,
            max_in_flight=tenant.max_in_flight,
            count_cached_tokens=tenant.count_cached_tokens,
            limits=[
                *in_force(own, "key", use.of_key(key_id, tenant.name)),
                *in_force(tenant.limits, "tenant", use.of_tenant(tenant.name)),
            ],
            version=row.settings_version,
        )

    @router.get("/tenants/{name}/limits", responses=documented(404))
    def get_tenant_limits(name: str, response: Response) -> LimitsOut:
        """Show the limits of a tenant, and what of them is used now."""
        return of_tenant(control_plane.get_tenant(name), response)

    @router.patch("/tenants/{name}/limits", responses=documented(404, 412))
    def change_tenant_limits(
        name: str, body: LimitsPatch, response: Response, if_match: IfMatch = None
    ) -> LimitsOut:
        """Set or remove limits of all keys of a tenant together. In force at once."""
        expected = expected_version(if_match)
        return of_tenant(limits.change_tenant(name, body.changes(), expected_version=expected), response)

    @router.get("/keys/{key_id}/limits", responses=documented(404))
    def get_key_limits(key_id: str, request: Request, response: Response) -> LimitsOut:
        """Show the limits that hold for a key: its own, and those of its tenant."""
        return of_key(key_id, request, response)

    @router.patch("/keys/{key_id}/limits", responses=documented(404, 412))
    def change_key_limits(
        key_id: str, body: LimitsPatch, request: Request, response: Response, if_match: IfMatch = None
    ) -> LimitsOut:
        """Set or remove limits of one key, beside those of its tenant. In force at once."""
        limits.change_key(key_id, body.changes(), expected_version=expected_version(if_match))
        return of_key(key_id, request, response)

    return router
