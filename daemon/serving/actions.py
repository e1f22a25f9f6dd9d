"""An operator's actions on the engine, carried out by the gateway and the supervisor together."""

from __future__ import annotations

import asyncio

import structlog

from pdmuxd.controlplane.node.engine_actions import Action, Done
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.engine.core.errors import ConflictError

log = structlog.get_logger("pdmuxd.daemon")


class OperatorActions:
    """Implements the control plane's EngineActions. `close` ends a restart that still waits."""

    def __init__(self, gateway: Gateway, supervisor: Supervisor, *, drain_timeout_s: float) -> None:
        self._gateway = gateway
        self._supervisor = supervisor
        self._drain_timeout_s = drain_timeout_s
        self._restart: asyncio.Task[None] | None = None

    def use_drain_timeout(self, drain_timeout_s: float) -> None:
        """Set the drain timeout of restarts that are asked for from now on."""
        self._drain_timeout_s = drain_timeout_s

    def start(self) -> Done:
        """Skip the back-off. Raises: ConflictError."""
        self._require_running()
        changed = self._supervisor.start_now()
        text = "the engine is started now" if changed else f"the engine is {self._state} already"
        return self._done("start", changed=changed, text=text)

    def drain(self) -> Done:
        """Hold the engine. Raises: ConflictError."""
        self._require_running()
        in_flight = self._gateway.admission.in_flight
        text = f"new requests are refused; {in_flight} in flight finish"
        if self._supervisor.is_held:
            return self._done("drain", changed=False, text=text)
        if self._state != "serving":
            raise ConflictError(f"the engine is {self._state}; only one that serves can be drained")
        self._supervisor.hold()
        return self._done("drain", changed=True, text=text)

    def resume(self) -> Done:
        """Let an engine that was held serve again. Raises: ConflictError."""
        self._require_running()
        if self._restarting:
            raise ConflictError("the engine is being restarted; it serves again by itself")
        if not self._supervisor.is_held:
            if self._state == "serving":
                return self._done("resume", changed=False, text="the engine serves already")
            raise ConflictError(
                f"the engine is {self._state} and was not drained; there is nothing to resume"
            )
        self._supervisor.release()
        return self._done("resume", changed=True, text="new requests are taken again")

    def restart(self, *, at_once: bool) -> Done:
        """End the engine, at once or when it has drained. Raises: ConflictError."""
        self._require_running()
        if self._state in ("starting", "down"):
            return self._done("restart", changed=self._supervisor.start_now(), text="the engine is starting")
        if at_once:
            self._end_restart()
            self._supervisor.restart()
            return self._done("restart", changed=True, text="the engine is ended and started again")
        text = f"{self._gateway.admission.in_flight} in flight may finish within {self._drain_timeout_s:g} s"
        if self._restarting:
            return self._done("restart", changed=False, text=text)
        self._supervisor.hold()
        self._restart = asyncio.create_task(self._drain_and_restart(), name="restart")
        return self._done("restart", changed=True, text=text)

    async def close(self) -> None:
        self._end_restart()
        if self._restart is not None:
            await asyncio.wait((self._restart,))

    @property
    def _state(self) -> str:
        return self._supervisor.status().state

    @property
    def _restarting(self) -> bool:
        return self._restart is not None and not self._restart.done()

    async def _drain_and_restart(self) -> None:
        idle = await self._gateway.idle_within(self._drain_timeout_s)
        log.info("restarting the engine", drained=idle)
        self._supervisor.restart()

    def _end_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()

    def _require_running(self) -> None:
        if self._supervisor.is_stopping:
            raise ConflictError("the daemon is stopping")

    def _done(self, action: Action, *, changed: bool, text: str) -> Done:
        return Done(action=action, changed=changed, state=self._supervisor.status().state, text=text)
