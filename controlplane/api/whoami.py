"""Which token a call carries, so that a client need not find out by being refused."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.auth import Role, role_of
from pdmuxd.controlplane.api.problems import documented


class WhoamiOut(BaseModel):
    """The caller."""

    role: Role = Field(examples=["reader"])
    may_change: bool = Field(examples=[False])


def whoami_routes() -> APIRouter:
    """`/whoami`."""
    router = APIRouter(tags=["version"])

    @router.get("/whoami", responses=documented())
    def get_whoami(request: Request) -> WhoamiOut:
        """Show what the token of this call is good for."""
        role = role_of(request.scope)
        return WhoamiOut(role=role, may_change=role == "admin")

    return router
