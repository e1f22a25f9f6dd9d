"""API keys over REST: a secret is shown once, when it is issued."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api_keys import LABEL_ALLOWED, LABEL_MAX
from pdmuxd.controlplane.services import ControlPlane

_KEY_EXAMPLE: JsonDict = {
    "key_id": "key_2f6c9a0b1d3e4f58",
    "tenant": "chat",
    "label": "laptop",
    "last4": "x7Qa",
    "created_at": "2026-01-31T12:00:00Z",
    "revoked_at": None,
}


class KeyIn(Body):
    """A new key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"label": "laptop"}]})
    allowed: ClassVar[Mapping[str, str]] = {"label": LABEL_ALLOWED}

    label: str = Field("", strict=True, max_length=LABEL_MAX, description="To tell keys apart.")


class KeyOut(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [_KEY_EXAMPLE]})

    key_id: str = Field(description="Names the key in lists and to revoke it; it opens nothing.")
    tenant: str
    label: str
    last4: str = Field(description="The last characters of the secret.")
    created_at: datetime
    revoked_at: datetime | None


class IssuedKeyOut(KeyOut):
    """A key with its secret, for the only time."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_KEY_EXAMPLE, "secret": "pdm_…43 characters…x7Qa"}]}
    )

    secret: str = Field(repr=False, description="What clients send as Bearer; only its SHA-256 is kept.")


def key_routes(control_plane: ControlPlane) -> APIRouter:
    """The routes of keys, under their tenant or by their id."""
    router = APIRouter(tags=["API keys"])

    @router.get("/tenants/{name}/keys", responses=documented(404))
    def list_keys(name: str) -> list[KeyOut]:
        """List a tenant's keys, oldest first, revoked ones too."""
        return [KeyOut.model_validate(key) for key in control_plane.list_keys(name)]

    @router.post("/tenants/{name}/keys", status_code=201, responses=documented(404))
    def issue_key(name: str, body: KeyIn, response: Response) -> IssuedKeyOut:
        """Issue a key. The secret is in this answer and is never shown again."""
        response.headers["Cache-Control"] = "no-store"
        return IssuedKeyOut.model_validate(control_plane.issue_key(name, body.label))

    @router.delete("/keys/{key_id}", responses=documented(404))
    def revoke_key(key_id: str) -> KeyOut:
        """Revoke a key for good, at once. Requests that are in flight finish."""
        return KeyOut.model_validate(control_plane.revoke_key(key_id))

    return router
