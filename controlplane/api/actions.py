"""Actions on the engine over REST. Asking twice does the same as asking once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.node.engine_actions import Action, Done, EngineActions
from pdmuxd.controlplane.node.engine_status import EngineState
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import StoreError

_log = logging.getLogger("pdmuxd.audit")


class RestartIn(Body):
    """How to restart; the body may be left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at_once": False}]})
    allowed: ClassVar[Mapping[str, str]] = {"at_once": "true and false"}

    at_once: bool = Field(
        False,
        strict=True,
        description="Do not let requests in flight finish; they end with `engine_stopping` or `engine_lost`.",
    )


class ActionOut(BaseModel):
    """What came of it."""

    action: Action = Field(examples=["drain"])
    changed: bool = Field(description="False if things were so already.")
    state: EngineState
    text: str = Field(examples=["new requests are refused; 5 in flight finish"])

    @classmethod
    def of(cls, done: Done) -> ActionOut:
        return cls(action=done.action, changed=done.changed, state=done.state, text=done.text)


def action_routes(actions: EngineActions, control_plane: ControlPlane) -> APIRouter:
    """`/engine/start`, `/engine/drain`, `/engine/resume`, `/engine/restart`."""
    router = admin_router(prefix="/engine", tags=["engine"])

    async def told(done: Done) -> ActionOut:
        if done.changed:
            await asyncio.to_thread(record_done, control_plane, done)
        return ActionOut.of(done)

    # Asynchronous: the supervisor and the gateway belong to the event loop.
    @router.post("/start", status_code=202, responses=documented(409, 503))
    async def start_engine() -> ActionOut:
        """Start an engine that is down at once, without waiting for the end of its back-off."""
        return await told(actions.start())

    @router.post("/drain", status_code=202, responses=documented(409, 503))
    async def drain_engine() -> ActionOut:
        """Refuse new requests and let those in flight finish. The engine stays, until it is resumed."""
        return await told(actions.drain())

    @router.post("/resume", status_code=202, responses=documented(409, 503))
    async def resume_engine() -> ActionOut:
        """Take new requests again after a drain."""
        return await told(actions.resume())

    @router.post("/restart", status_code=202, responses=documented(409, 503))
    async def restart_engine(body: RestartIn | None = None) -> ActionOut:
        """End the engine and start another. Requests in flight may finish first, within drain_timeout_s."""
        return await told(actions.restart(at_once=body.at_once if body is not None else False))

    return router


def record_done(control_plane: ControlPlane, done: Done) -> None:
    """Put an action in the audit. It needs no database to be done, so a failure here is only logged."""
    try:
        control_plane.record_action(f"engine.{done.action}", subject="engine", after={"text": done.text})
    except StoreError as error:
        _log.warning("an action on the engine is not in the audit: %s: %s", done.action, error)
