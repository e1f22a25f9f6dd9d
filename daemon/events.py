"""Events about the engine and the tenants: who publishes them on the bus, and who receives them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.bus import DeliveryChanged, DirectoryChanged, EventBus, TbtFloorsChanged
from pdmuxd.daemon.duties.refinement import Refinement
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.process.background import in_background
from pdmuxd.daemon.supervisor.events import (
    EngineAccepting,
    EngineServing,
    EngineStateChanged,
    EngineUnresponsive,
)
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.engine.core.errors import StoreError
from pdmuxd.engine.link.measuring import Measured
from pdmuxd.engine.link.messages import (
    Ack,
    EngineStats,
    Hello,
    IterationRecord,
    RequestRecord,
    TenantQueues,
)

_REFRESH_PERIOD_S = 2.0
"""How often to look whether another process has changed the database."""

log = structlog.get_logger("pdmuxd.daemon")


def connect_gateway(bus: EventBus, gateway: Gateway) -> None:
    """The gateway sends requests where the engine is, and refuses them where it is not."""

    def on_state(event: EngineStateChanged) -> None:
        if event.state == "draining":
            # The engine goes on with its requests; only the gateway knows when they are done.
            gateway.refuse_new()
        else:
            gateway.lose_engine(event.state, event.reason)

    bus.subscribe(EngineServing, lambda event: gateway.use_engine(event.address))
    bus.subscribe(EngineAccepting, lambda _: gateway.accept_new())
    bus.subscribe(EngineUnresponsive, lambda event: gateway.suspect_engine(event.is_unresponsive))
    bus.subscribe(EngineStateChanged, on_state)
    bus.subscribe(DirectoryChanged, lambda event: gateway.use_directory(event.snapshot, event.change))


def connect_metrics(bus: EventBus, metrics: Metrics) -> None:
    """The metrics count requests by tenant; a tenant must be known before the gateway serves it."""
    bus.subscribe(Hello, metrics.engine_hello)
    bus.subscribe(EngineStats, metrics.engine_stats)
    bus.subscribe(IterationRecord, metrics.decision)
    bus.subscribe(RequestRecord, metrics.request_record)
    bus.subscribe(DirectoryChanged, lambda event: metrics.use_tenants(event.snapshot.tenants))


def connect_telemetry(bus: EventBus, telemetry: Telemetry) -> None:
    """The telemetry keeps and tells everything."""
    bus.subscribe(EngineAccepting, lambda _: telemetry.on_state("serving", None))
    bus.subscribe(EngineStateChanged, lambda event: telemetry.on_state(event.state, event.reason))
    bus.subscribe(RequestRecord, telemetry.on_request)
    bus.subscribe(Hello, telemetry.on_message)
    bus.subscribe(Ack, telemetry.on_message)
    bus.subscribe(Measured, telemetry.on_message)
    bus.subscribe(IterationRecord, telemetry.on_message)
    bus.subscribe(EngineStats, telemetry.on_message)
    bus.subscribe(TenantQueues, telemetry.on_message)
    bus.subscribe(DirectoryChanged, lambda event: telemetry.on_directory(event.snapshot, event.change))


def connect_refinement(bus: EventBus, refinement: Refinement) -> None:
    """The refinement learns from every step."""
    bus.subscribe(Hello, refinement.on_hello)
    bus.subscribe(IterationRecord, refinement.on_iteration)
    bus.subscribe(DirectoryChanged, lambda event: refinement.use(event.snapshot))


def connect_engine(bus: EventBus, supervisor: Supervisor) -> None:
    """The engine gets the settings that follow from a changed directory, and from what was measured."""
    bus.subscribe(
        DirectoryChanged,
        lambda event: supervisor.want(event.settings or event.snapshot.engine_settings("")),
    )
    bus.subscribe(TbtFloorsChanged, lambda event: supervisor.use_floors(event.floors_s))
    bus.subscribe(DeliveryChanged, lambda event: supervisor.use_delivery(event.planned_s))


def connect_service_manager(bus: EventBus, tell: Callable[[str], None]) -> None:
    """The service manager shows one line about the engine."""

    def on_state(event: EngineStateChanged) -> None:
        tell(f"The engine is {event.state}" + (f": {event.reason}" if event.reason else ""))

    bus.subscribe(EngineServing, lambda event: tell(f"Serving {', '.join(sorted(event.address.models))}"))
    bus.subscribe(EngineStateChanged, on_state)


def follow_directory(stack: AsyncExitStack, control_plane: ControlPlane, bus: EventBus) -> None:
    """Publish the newest directory, whoever changes it: REST's threads here, or another process."""
    loop = asyncio.get_running_loop()
    newest, before = -1, control_plane.directory

    def publish(event: DirectoryChanged) -> None:
        nonlocal newest
        if event.snapshot.version > newest:
            newest = event.snapshot.version
            bus.publish(event)

    async def refresh() -> None:
        while True:
            await asyncio.sleep(_REFRESH_PERIOD_S)
            try:
                await asyncio.to_thread(control_plane.refresh)
            except StoreError as error:
                log.warning("tenants not refreshed", reason=str(error))

    def on_change(snapshot: DirectorySnapshot) -> None:
        # In the thread that made the change, one after the other: a thousand changed tenants take 50 ms.
        nonlocal before
        change = DirectoryChange.between(before, snapshot, time.time())
        before = snapshot
        event = DirectoryChanged(snapshot, change, snapshot.engine_settings(""))
        loop.call_soon_threadsafe(publish, event)

    stack.callback(control_plane.subscribe(on_change))
    publish(DirectoryChanged(control_plane.directory))
    in_background(stack, refresh(), name="refresh")
