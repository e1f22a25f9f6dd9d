"""API keys over REST: a secret is shown once, when it is issued."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.access import own_tenant
from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.pages import PAGE_MAX, link_next
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.key_service import DEFAULT_OVERLAP_S, OVERLAP_RANGE_S
from pdmuxd.controlplane.tenants.api_keys import (
    LABEL_ALLOWED,
    LABEL_MAX,
    LABEL_PATTERN,
    SCOPES,
    SCOPES_ALLOWED,
    ApiKey,
    IssuedKey,
    KeyState,
)
from pdmuxd.controlplane.tenants.expiry import LIFETIME_ALLOWED, LIFETIME_RANGE_S, end_after
from pdmuxd.controlplane.tenants.records import Scope

_KEY_EXAMPLE: JsonDict = {
    "key_id": "key_2f6c9a0b1d3e4f58",
    "tenant": "chat",
    "label": "laptop",
    "scopes": ["serve"],
    "state": "valid",
    "last4": "x7Qa",
    "created_at": "2026-01-31T12:00:00Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": "2026-01-31T12:30:00Z",
    "replaces": None,
    "version": 17,
}
_SCOPES = (
    "`serve`: the data plane as this tenant. `read`: this tenant's own rows here. `admin`: also its own keys."
)
_OVERLAP = "How long the old secret goes on being good, so that clients can be changed one by one."


class KeyIn(Body):
    """A new key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"label": "laptop", "scopes": ["serve"]}]})
    allowed: ClassVar[Mapping[str, str]] = {
        "label": LABEL_ALLOWED,
        "scopes": SCOPES_ALLOWED,
        "lifetime_s": LIFETIME_ALLOWED,
    }

    label: str = Field(
        "",
        strict=True,
        max_length=LABEL_MAX,
        pattern=LABEL_PATTERN,
        description="To tell keys apart.",
    )
    scopes: list[Scope] = Field(
        ["serve"],
        min_length=1,
        max_length=len(SCOPES),
        description=_SCOPES,
        json_schema_extra={"uniqueItems": True},
    )
    lifetime_s: int | None = Field(
        None,
        strict=True,
        ge=LIFETIME_RANGE_S[0],
        le=LIFETIME_RANGE_S[1],
        description="After so long it ends by itself; null: never.",
    )


class RotateIn(Body):
    """How to rotate."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"overlap_s": 86400}]})
    allowed: ClassVar[Mapping[str, str]] = {
        "overlap_s": f"{OVERLAP_RANGE_S[0]} to {OVERLAP_RANGE_S[1]}",
    }

    overlap_s: int = Field(
        DEFAULT_OVERLAP_S, strict=True, ge=OVERLAP_RANGE_S[0], le=OVERLAP_RANGE_S[1], description=_OVERLAP
    )


class KeyOut(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [_KEY_EXAMPLE]})

    key_id: str = Field(description="Names the key in lists and to revoke it; it opens nothing.")
    tenant: str
    label: str
    scopes: list[Scope] = Field(description=_SCOPES)
    state: KeyState
    last4: str = Field(description="The last characters of the secret.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To half a minute; null: never.")
    replaces: str | None = Field(description="The key in whose place this one was made by a rotation.")
    version: int = Field(description="The settings version of its last change; also the ETag.")


class IssuedKeyOut(KeyOut):
    """A key with its secret, for the only time."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_KEY_EXAMPLE, "secret": "pdm_…43 characters…x7Qa"}]}
    )

    secret: str = Field(repr=False, description="What clients send as Bearer; only its SHA-256 is kept.")


def key_routes(control_plane: ControlPlane) -> APIRouter:
    """The routes of keys, under their tenant or by their id."""
    router = admin_router(tags=["API keys"])
    keys = control_plane.keys

    def shown(key: ApiKey) -> KeyOut:
        return KeyOut(**_fields(key, control_plane.store.clock()))

    def issued(key: IssuedKey, response: Response) -> IssuedKeyOut:
        response.headers["Cache-Control"] = "no-store"
        response.headers["Location"] = f"/api/v1/keys/{key.key_id}"
        tag(response, key.version)
        return IssuedKeyOut(**_fields(key, control_plane.store.clock()), secret=key.secret)

    @router.get("/tenants/{name}/keys", responses=documented(404))
    def list_keys(
        name: str,
        request: Request,
        response: Response,
        after: Annotated[str | None, Query(description="Go on behind this key.")] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
        revoked: Annotated[bool | None, Query(description="Only those that were revoked, or not.")] = None,
    ) -> list[KeyOut]:
        """List a tenant's keys, oldest first, revoked ones too. `Link` leads to the next page."""
        found = keys.list(name, after=after, limit=limit, revoked=revoked)
        link_next(request, response, found[-1].key_id if len(found) == limit else None)
        return [shown(key) for key in found]

    @router.post("/tenants/{name}/keys", status_code=201, responses=documented(404))
    def issue_key(name: str, body: KeyIn, response: Response) -> IssuedKeyOut:
        """Issue a key. The secret is in this answer and is never shown again."""
        key = keys.issue(
            name,
            body.label,
            scopes=body.scopes,
            expires_at=end_after(body.lifetime_s, now=control_plane.store.clock()),
        )
        return issued(key, response)

    @router.get("/keys/{key_id}", responses=documented(404))
    def get_key(key_id: str, request: Request, response: Response) -> KeyOut:
        """Show a key."""
        key = keys.get(key_id, of_tenant=own_tenant(request))
        tag(response, key.version)
        return shown(key)

    @router.post("/keys/{key_id}/rotate", status_code=201, responses=documented(404, 409, 412))
    def rotate_key(
        key_id: str, body: RotateIn, request: Request, response: Response, if_match: IfMatch = None
    ) -> IssuedKeyOut:
        """Issue a key in the place of this one, which goes on being good for the overlap."""
        key = keys.rotate(
            key_id,
            overlap_s=body.overlap_s,
            of_tenant=own_tenant(request),
            expected_version=expected_version(if_match),
        )
        return issued(key, response)

    @router.delete("/keys/{key_id}", responses=documented(404, 412))
    def revoke_key(key_id: str, request: Request, response: Response, if_match: IfMatch = None) -> KeyOut:
        """Revoke a key for good, at once. Requests that are in flight finish."""
        expected = expected_version(if_match)
        key = keys.revoke(key_id, of_tenant=own_tenant(request), expected_version=expected)
        tag(response, key.version)
        return shown(key)

    return router


def _fields(key: ApiKey, now: datetime) -> dict[str, object]:
    plain = {name: getattr(key, name) for name in KeyOut.model_fields if name != "state"}
    return {**plain, "scopes": list(key.scopes), "state": key.state(now)}
