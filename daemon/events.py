"""Who is told when the engine or the tenants change: the wires between the daemon's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from pdmuxd.controlplane.directory import DirectorySnapshot
from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.controlplane.status import EngineState
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.background import in_background
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.refinement import Refinement
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.engine.core.errors import StoreError
from pdmuxd.engine.link.measuring import Measured
from pdmuxd.engine.link.messages import Ack, EngineStats, Hello, IterationRecord, RequestRecord

_REFRESH_PERIOD_S = 2.0
"""How often to look whether another process has changed the database."""

log = structlog.get_logger("pdmuxd.daemon")


class EngineEvents:
    """The supervisor's listener: opens and closes the gateway, counts, and tells whoever watches."""

    def __init__(
        self, gateway: Gateway, metrics: Metrics, telemetry: Telemetry, *, tell: Callable[[str], None]
    ) -> None:
        self.refinement: Refinement | None = None
        """Learns from the steps; set once there is a supervisor to ask."""
        self._gateway = gateway
        self._metrics = metrics
        self._telemetry = telemetry
        self._tell = tell

    def on_serving(self, address: EngineAddress) -> None:
        """Requests may be sent to `address`."""
        log.info(
            "engine serves",
            address=address.base_url,
            models=sorted(address.models),
            partition_groups=address.partition_groups,
        )
        self._gateway.use_engine(address)
        self._tell(f"Serving {', '.join(sorted(address.models))}")

    def on_accepting(self) -> None:
        """New requests may be taken."""
        self._gateway.accept_new()
        self._telemetry.on_state("serving", None)

    def on_state(self, state: EngineState, reason: str | None) -> None:
        """The engine is now `starting`, `draining` or `down`."""
        if state == "draining":
            # It goes on with what it has; only the gateway knows when that is done.
            self._gateway.refuse_new()
        else:
            self._gateway.lose_engine(state)
        self._telemetry.on_state(state, reason)
        self._tell(f"The engine is {state}" + (f": {reason}" if reason else ""))

    def on_request(self, record: RequestRecord) -> None:
        """A request ended in the engine."""
        self._metrics.request_record(record)
        self._telemetry.on_request(record)

    def on_message(self, message: Hello | Ack | Measured | IterationRecord | EngineStats) -> None:
        """Telemetry, an acknowledgement, an introduction."""
        self._telemetry.on_message(message)
        if self.refinement is not None:
            match message:
                case Hello():
                    self.refinement.on_hello(message)
                case IterationRecord():
                    self.refinement.on_iteration(message)
                case _:
                    pass


class DirectoryEvents:
    """Brings a changed directory to everyone who works from it, in the event loop."""

    def __init__(
        self,
        gateway: Gateway,
        metrics: Metrics,
        telemetry: Telemetry,
        supervisor: Supervisor,
        refinement: Refinement,
        *,
        policy: str,
    ) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._telemetry = telemetry
        self._supervisor = supervisor
        self._refinement = refinement
        self._policy = policy
        self._version = -1

    def apply(self, snapshot: DirectorySnapshot) -> None:
        """Work from `snapshot`, unless a newer one has come first."""
        if snapshot.version <= self._version:
            return
        self._version = snapshot.version
        self._metrics.use_tenants(snapshot.tenants)
        self._gateway.use_directory(snapshot)
        self._telemetry.on_directory(snapshot)
        self._refinement.use(snapshot)
        self._supervisor.want(snapshot.engine_settings(self._policy))


def follow_directory(stack: AsyncExitStack, control_plane: ControlPlane, directory: DirectoryEvents) -> None:
    """Work from the newest directory, whoever changes it: REST's threads here, or another process."""
    loop = asyncio.get_running_loop()

    def on_change(snapshot: DirectorySnapshot) -> None:
        loop.call_soon_threadsafe(directory.apply, snapshot)

    async def refresh() -> None:
        while True:
            await asyncio.sleep(_REFRESH_PERIOD_S)
            try:
                await asyncio.to_thread(control_plane.refresh)
            except StoreError as error:
                log.warning("tenants not refreshed", reason=str(error))

    stack.callback(control_plane.subscribe(on_change))
    directory.apply(control_plane.directory)
    in_background(stack, refresh(), name="refresh")
