"""The admin address of a daemon, without the rest of it, on a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from stores import ADMIN_TOKEN

from pdmuxd.controlplane.api import build_admin_app
from pdmuxd.controlplane.credentials import digest
from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.controlplane.status import NO_ENGINE, EngineStatus


class AdminDaemon:
    """Serves a control plane; its engine confirms every change at once, unless told not to."""

    def __init__(self, control_plane: ControlPlane, port: int) -> None:
        self.port = port
        self.acks = True
        self.calls: list[str] = []
        self._control_plane = control_plane
        self.app = build_admin_app(
            control_plane, engine_status=self._status, admin_token_sha256=digest(ADMIN_TOKEN)
        )

    def _status(self) -> EngineStatus:
        acked = self._control_plane.snapshot().version if self.acks else 0
        return replace(NO_ENGINE, state="serving", acked_version=acked)


@contextmanager
def admin_daemon(control_plane: ControlPlane) -> Iterator[AdminDaemon]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        daemon = AdminDaemon(control_plane, listener.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(daemon.app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield daemon
        finally:
            server.should_exit = True
            thread.join()
