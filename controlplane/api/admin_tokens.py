"""Admin tokens over REST."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.admin_tokens import TokenRole
from pdmuxd.controlplane.tenants.expiry import LIFETIME_ALLOWED, LIFETIME_RANGE_S, end_after
from pdmuxd.controlplane.tenants.tenant_fields import NAME, NAME_ALLOWED

_EXAMPLE: JsonDict = {
    "name": "deploy",
    "role": "admin",
    "last4": "x7Qa",
    "created_by": "admin-token",
    "created_at": "2026-01-31T12:00:00Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
    "version": 17,
}


class AdminTokenIn(Body):
    """A new token."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "deploy", "role": "admin"}]})
    allowed: ClassVar[Mapping[str, str]] = {
        "name": NAME_ALLOWED,
        "role": "admin and reader",
        "lifetime_s": LIFETIME_ALLOWED,
    }

    name: str = Field(strict=True, pattern=f"^{NAME.pattern}$", description=NAME_ALLOWED)
    role: TokenRole = Field("admin", description="`reader` reads everything and changes nothing.")
    lifetime_s: int | None = Field(
        None,
        strict=True,
        ge=LIFETIME_RANGE_S[0],
        le=LIFETIME_RANGE_S[1],
        description="After so long it ends by itself; null: never.",
    )


class AdminTokenOut(BaseModel):
    """A token without its secret."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [_EXAMPLE]})

    name: str
    role: TokenRole
    last4: str = Field(description="The last characters of the secret.")
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To half a minute; null: never.")
    version: int = Field(description="The settings version of its last change; also the ETag.")


class IssuedAdminTokenOut(AdminTokenOut):
    """A token with its secret, for the only time."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_EXAMPLE, "secret": "pdma_…43 characters…x7Qa"}]}
    )

    secret: str = Field(repr=False, description="Only its SHA-256 is kept.")


def admin_token_routes(control_plane: ControlPlane) -> APIRouter:
    """The routes under `/admin-tokens`."""
    router = admin_router(prefix="/admin-tokens", tags=["admin tokens"])
    tokens = control_plane.admin_tokens

    @router.get("", responses=documented())
    def list_admin_tokens() -> list[AdminTokenOut]:
        """List the admin tokens by name, revoked ones too. The token in the file is not among them."""
        return [AdminTokenOut.model_validate(token) for token in tokens.list()]

    @router.post("", status_code=201, responses=documented(409))
    def issue_admin_token(body: AdminTokenIn, response: Response) -> IssuedAdminTokenOut:
        """Issue a token. The secret is in this answer and is never shown again."""
        token = tokens.issue(
            body.name, role=body.role, expires_at=end_after(body.lifetime_s, now=control_plane.store.clock())
        )
        response.headers["Cache-Control"] = "no-store"
        response.headers["Location"] = f"/api/v1/admin-tokens/{token.name}"
        tag(response, token.version)
        return IssuedAdminTokenOut.model_validate(token)

    @router.get("/{name}", responses=documented(404))
    def get_admin_token(name: str, response: Response) -> AdminTokenOut:
        """Show a token."""
        token = tokens.get(name)
        tag(response, token.version)
        return AdminTokenOut.model_validate(token)

    @router.delete("/{name}", responses=documented(404, 412))
    def revoke_admin_token(name: str, response: Response, if_match: IfMatch = None) -> AdminTokenOut:
        """Revoke a token for good, at once. Its name is not given again."""
        token = tokens.revoke(name, expected_version=expected_version(if_match))
        tag(response, token.version)
        return AdminTokenOut.model_validate(token)

    return router
