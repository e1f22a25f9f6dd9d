"""Actions on the daemon itself over REST."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from typing import ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.messages import instant, ms
from pdmuxd.controlplane.node.daemon_actions import DaemonActions, DutyState, Reloaded
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import StoreError

_log = logging.getLogger("pdmuxd.audit")


class UpgradeIn(Body):
    """How to upgrade; the body may be left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"migrate": False}]})
    allowed: ClassVar[Mapping[str, str]] = {"migrate": "true and false"}

    migrate: bool = Field(
        False, strict=True, description="Let the new version bring the database to its own schema."
    )


class ReloadOut(BaseModel):
    """The settings that have changed since they were read last, by name."""

    in_force: list[str] = Field(examples=[["http.keep_alive_s"]])
    needs_engine_restart: list[str] = Field(examples=[["engine.policy"]])
    needs_upgrade: list[str] = Field(description="In force after an upgrade, even to the same version.")
    needs_restart: list[str] = Field(examples=[["data.port"]])

    @classmethod
    def of(cls, reloaded: Reloaded) -> ReloadOut:
        return cls(
            in_force=list(reloaded.in_force),
            needs_engine_restart=list(reloaded.needs_engine_restart),
            needs_upgrade=list(reloaded.needs_upgrade),
            needs_restart=list(reloaded.needs_restart),
        )


class UpgradeOut(BaseModel):
    """The daemon that has taken over."""

    before: str = Field(examples=["0.1.0"], description="The version of the daemon that answers here.")
    version: str = Field(examples=["0.2.0"], description="That of the daemon that has taken over.")


class DutyOut(BaseModel):
    """Something that the daemon does by itself."""

    name: str = Field(examples=["storing token use"], description="What it does.")
    period_ms: float | None = Field(
        examples=[5000.0], description="It is done again and again; null: it goes on, or is done once."
    )
    last_run_at: datetime | None = Field(description="When it began last; null before that.")
    failed: str | None = Field(description="Why it did not do its work the last time; null if it did.")
    is_alone: bool = Field(description="Whether it ends when another daemon takes over.")

    @classmethod
    def of(cls, state: DutyState) -> DutyOut:
        return cls(
            name=state.name,
            period_ms=ms(state.period_s),
            last_run_at=None if state.last_run_s is None else instant(state.last_run_s),
            failed=state.failed,
            is_alone=state.is_alone,
        )


def daemon_routes(actions: DaemonActions, control_plane: ControlPlane) -> APIRouter:
    """`/daemon/duties`, `/daemon/reload`, `/daemon/upgrade`."""
    router = admin_router(prefix="/daemon", tags=["daemon"])

    @router.get("/duties", responses=documented())
    async def list_duties() -> list[DutyOut]:
        """List what the daemon does by itself, and how it went the last time."""
        return [DutyOut.of(state) for state in actions.duty_states()]

    # Asynchronous: what they act on belongs to the event loop.
    @router.post("/reload", responses=documented(409))
    async def reload_settings() -> ReloadOut:
        """Read the settings again; says by name which are in force now, and what the others take."""
        reloaded = ReloadOut.of(actions.reload())
        if any(reloaded.model_dump().values()):
            await asyncio.to_thread(_record, control_plane, "daemon.reload", reloaded.model_dump())
        return reloaded

    @router.post("/upgrade", responses=documented(409))
    async def upgrade_daemon(body: UpgradeIn | None = None) -> UpgradeOut:
        """Start the installed version of this daemon and give it the place: sockets, state directory, engine.

        Answers when the new one serves. Requests in flight finish in the process that has them.
        """
        taken = await actions.upgrade(migrate=body.migrate if body is not None else False)
        out = UpgradeOut(before=version("pdmuxd"), version=taken)
        await asyncio.to_thread(_record, control_plane, "daemon.upgrade", out.model_dump())
        return out

    return router


def _record(control_plane: ControlPlane, action: str, after: Mapping[str, object]) -> None:
    """Record it in the audit. It is done already, so a failure here is only logged."""
    try:
        control_plane.record_action(action, subject="daemon", after=dict(after))
    except StoreError as error:
        _log.warning("an action on the daemon is not in the audit: %s: %s", action, error)
