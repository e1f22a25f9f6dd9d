"""A tenant put as a whole: made if there is none of that name, else replaced."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response

from pdmuxd.controlplane.api.config_bodies import ConfigTenantIn
from pdmuxd.controlplane.api.etags import Force, IfMatch, expected_version, tag
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.tenants import TenantOut
from pdmuxd.controlplane.database.transactions import check_expected
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.outlook.slo_preview import Previews
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import NotFoundError


def tenant_put_routes(
    control_plane: ControlPlane, engine_status: Callable[[], EngineStatus], previews: Previews
) -> APIRouter:
    """`PUT /tenants/{name}`."""
    router = admin_router(prefix="/tenants", tags=["tenants"])

    @router.put("/{name}", responses=documented(404, 409, 412) | {201: {"model": TenantOut}})
    def put_tenant(
        name: str,
        body: ConfigTenantIn,
        response: Response,
        force: Force = False,
        if_match: IfMatch = None,
    ) -> TenantOut:
        """Make a tenant as the body says, with its targets and limits; what is left out gets its default.

        Creates it (201) if there is none of that name. One change, one settings version; put again, nothing
        changes. Its keys stay. With `If-Match` it must exist.
        """
        record, expected = body.record(name), expected_version(if_match)
        try:
            before = control_plane.get_tenant(name)
        except NotFoundError:
            check_expected(expected, 0, f"tenant {name}")
        else:
            check_expected(expected, before.version, f"tenant {name}")
            predicted = previews.of_edit(name, record.slo, before.slo) if record.slo != before.slo else None
            if predicted is not None and not force:
                predicted.require_feasible()
        tenant, is_new = control_plane.configs.put_tenant(record, expected_version=expected)
        response.status_code = 201 if is_new else 200
        if is_new:
            response.headers["Location"] = f"/api/v1/tenants/{name}"
        tag(response, tenant.version)
        return TenantOut.of(tenant, engine_status())

    return router
