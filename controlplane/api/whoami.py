"""Says whose token a call carries, and what it may do; a client asks here instead of trying."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.database.callers import CallerKind, Role


class WhoamiOut(BaseModel):
    """The caller."""

    role: Role = Field(examples=["reader"], description="`tenant`: an API key, for its tenant only.")
    may_change: bool = Field(examples=[False], description="Whether the token may change anything at all.")
    kind: CallerKind = Field(examples=["admin-token"])
    name: str = Field(examples=["grafana"], description="The token's name, or the key's id.")
    tenant: str | None = Field(examples=[None], description="Of an API key.")
    scopes: list[str] = Field(examples=[[]], description="Of an API key.")


def whoami_routes() -> APIRouter:
    """`/whoami`."""
    router = admin_router(tags=["version"])

    @router.get("/whoami", responses=documented())
    def get_whoami(request: Request) -> WhoamiOut:
        """Show what the token of this call is good for."""
        caller = caller_of(request.scope)
        return WhoamiOut(
            role=caller.role,
            may_change=caller.role == "admin" or "admin" in caller.scopes,
            kind=caller.kind,
            name=caller.name,
            tenant=caller.tenant,
            scopes=sorted(caller.scopes),
        )

    return router
