"""What the gateway refuses since it was in flight when engines ended, and its release, over REST."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.node.quarantine import QuarantineActions
from pdmuxd.controlplane.services.control_plane import ControlPlane


class HeldOut(BaseModel):
    """A body of a tenant, or a whole tenant, that is refused with 403 `quarantined`."""

    tenant: str = Field(examples=["chat"])
    body: str | None = Field(
        examples=["9f2c"], description="The hash of the body; null if all of the tenant's requests are held."
    )
    request_ids: list[str] = Field(
        description="The requests that were in flight when the engines ended; the engine's log names them."
    )
    engine_errors: list[str] = Field(
        description="Why those engines ended: the last exception of each, or how its process ended."
    )
    until: datetime = Field(description="When it is released by itself.")


class ReleaseIn(Body):
    """The tenant whose bodies are released; all tenants if none is named."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tenant": "chat"}]})
    allowed: ClassVar[Mapping[str, str]] = {"tenant": "a tenant's name, or null for all"}

    tenant: str | None = Field(None, max_length=64)


class ReleasedOut(BaseModel):
    """What came of it."""

    released: int = Field(examples=[1], description="How many entries are no longer held.")


def quarantine_routes(quarantine: QuarantineActions, control_plane: ControlPlane) -> APIRouter:
    """`/engine/quarantine` and `/engine/quarantine/release`."""
    router = admin_router(prefix="/engine/quarantine", tags=["engine"])

    # Asynchronous: the quarantine belongs to the event loop.
    @router.get("", responses=documented())
    async def list_quarantine() -> list[HeldOut]:
        """List the requests and tenants that are refused since they were in flight when engines ended."""
        now = datetime.now(UTC)
        return [
            HeldOut(
                tenant=held.tenant,
                body=held.body,
                request_ids=list(held.request_ids),
                engine_errors=list(held.engine_errors),
                until=now + timedelta(seconds=held.left_s),
            )
            for held in quarantine.held()
        ]

    @router.post("/release", responses=documented())
    async def release_quarantine(body: ReleaseIn) -> ReleasedOut:
        """Serve them again: those of one tenant, or all."""
        tenant = body.tenant
        names = sorted({held.tenant for held in quarantine.held() if tenant in (None, held.tenant)})
        released = quarantine.release(tenant)
        if released:
            await asyncio.to_thread(
                control_plane.record_action,
                "quarantine.release",
                subject="engine",
                after={"released": released, "tenants": names},
                tenant=tenant,
            )
        return ReleasedOut(released=released)

    return router
