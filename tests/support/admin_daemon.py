"""The admin address of a daemon, without the rest of it, on a real socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from shared_apps import lent_app

from pdmuxd.controlplane.node.engine_actions import Action, Done
from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineStatus
from pdmuxd.controlplane.node.quarantine import Held
from pdmuxd.controlplane.outlook.tbt_costs import TbtCost
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry


class MadeUpQuarantine:
    """Holds one body of the tenant `chat` until that is released."""

    def __init__(self) -> None:
        self.entries = [
            Held(
                tenant="chat",
                body="9f2c11aa55",
                request_ids=("r1", "r2"),
                engine_errors=("RuntimeError: one", "RuntimeError: two"),
                left_s=60.0,
            )
        ]

    def held(self) -> list[Held]:
        return self.entries

    def release(self, tenant: str | None = None) -> int:
        kept = [held for held in self.entries if tenant not in (None, held.tenant)]
        released, self.entries = len(self.entries) - len(kept), kept
        return released


class AdminDaemon:
    """Serves a control plane; its engine confirms every change at once, unless told not to."""

    def __init__(self, control_plane: ControlPlane, port: int) -> None:
        self.port = port
        self.acks = True
        self.calls: list[str] = []
        self.script: list[dict[str, Any]] = []
        """How the engine differs from one that serves, call after call; the last stays."""
        self.in_flight: dict[str, int] = {}
        self.quarantine = MadeUpQuarantine()
        self.costs: tuple[TbtCost, ...] = ()
        self._control_plane = control_plane
        self.telemetry = Telemetry(clock=time.time, in_flight=lambda: self.in_flight)
        self.telemetry.on_directory(control_plane.directory)

    def behind(self) -> dict[str, Any]:
        """What the application asks."""
        return {"control_plane": self._control_plane, "engine_status": self.engine_status}

    def options(self) -> dict[str, Any]:
        return {
            "telemetry": self.telemetry,
            "actions": self,
            "quarantine": self.quarantine,
            "known_costs": lambda: self.costs,
        }

    def engine_status(self) -> EngineStatus:
        acked = self._control_plane.snapshot().version if self.acks else 0
        serving = replace(NO_ENGINE, state="serving", acked_version=acked, last_error=None)
        if not self.script:
            return serving
        return replace(serving, **(self.script.pop(0) if len(self.script) > 1 else self.script[0]))

    def start(self) -> Done:
        return self._done("start", "the engine is started now")

    def drain(self) -> Done:
        return self._done("drain", "new requests are refused; 2 in flight finish")

    def resume(self) -> Done:
        return self._done("resume", "new requests are taken again")

    def restart(self, *, at_once: bool) -> Done:
        return self._done("restart", f"ended {'at once' if at_once else 'when drained'}")

    def _done(self, action: Action, text: str) -> Done:
        self.calls.append(action)
        return Done(action=action, changed=True, state="draining", text=text)


@contextmanager
def admin_daemon(control_plane: ControlPlane) -> Iterator[AdminDaemon]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        daemon = AdminDaemon(control_plane, listener.getsockname()[1])
        with lent_app(daemon.behind(), daemon.options()) as app:
            server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            try:
                yield daemon
            finally:
                server.should_exit = True
                thread.join()
