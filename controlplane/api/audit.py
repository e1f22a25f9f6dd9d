"""The audit over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.history import seconds_of
from pdmuxd.controlplane.api.long_lists import long_list
from pdmuxd.controlplane.api.pages import PAGE_MAX
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.services.control_plane import AUDIT_LIMIT, ControlPlane

_ID_MAX = 2**31 - 1


class AuditEntryOut(BaseModel):
    """One change."""

    model_config = ConfigDict(from_attributes=True)

    entry_id: int = Field(examples=[812], description="Grows with each change.")
    at: datetime
    who_kind: str = Field(examples=["admin-token"], description="What kind of token, key or program it was.")
    who: str = Field(examples=["deploy"], description="The token's name, or the key's id.")
    why: str | None = Field(examples=["ticket 4711"], description="What X-Change-Reason said.")
    source: str | None = Field(
        examples=["10.0.0.7"],
        description="The address that the call came from; null for what came from no network.",
    )
    action: str = Field(examples=["slo.set"])
    subject: str = Field(examples=["chat"], description="The tenant, key, token or profile it is about.")
    tenant: str | None = Field(examples=["chat"])
    settings_version: int
    before: dict[str, Any] | None = Field(description="Null where there was nothing before.")
    after: dict[str, Any] | None = Field(description="Null where there is nothing any more.")


class AuditOut(BaseModel):
    """Changes, newest first."""

    entries: list[AuditEntryOut]
    next_before: int | None = Field(
        examples=[713], description="Ask with this as `before` for the next page; null at the end."
    )


def audit_routes(control_plane: ControlPlane) -> APIRouter:
    """`/audit`."""
    router = admin_router(tags=["audit"])

    @router.get("/audit", responses=documented(), response_model=AuditOut)
    def list_audit(
        before: Annotated[int | None, Query(ge=1, le=_ID_MAX, description="Only older entries.")] = None,
        tenant: Annotated[str | None, Query(description="Only what concerns this tenant.")] = None,
        who: Annotated[str | None, Query(description="Only of this token or key.")] = None,
        action: Annotated[str | None, Query(description="Such as key.issue.")] = None,
        since: Annotated[AwareDatetime | None, Query(description="Only from this instant on.")] = None,
        until: Annotated[AwareDatetime | None, Query(description="Only before this instant.")] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = AUDIT_LIMIT,
    ) -> Response:
        """List who changed what, when and why, with how it was before and after."""
        for name, at in (("since", since), ("until", until)):
            if at is not None:
                seconds_of(name, at)  # outside of the years that a database knows
        found = control_plane.audit(
            before_id=before,
            tenant=tenant,
            who=who,
            action=action,
            since=since,
            until=until,
            limit=limit,
        )
        next_before = found[-1].entry_id if len(found) == limit else None
        lines = map(AuditEntryOut.model_validate, found)
        return long_list(AuditOut(entries=[], next_before=next_before), "entries", lines)

    return router
