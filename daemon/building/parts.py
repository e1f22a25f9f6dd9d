"""All stages together, told of each other by the bus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.building.admin_plane import AdminPlane, build_admin_plane
from pdmuxd.daemon.building.data_plane import DataPlane, build_data_plane
from pdmuxd.daemon.building.learning import Learning, build_learning
from pdmuxd.daemon.building.node import Node
from pdmuxd.daemon.bus import DirectoryChanged, TbtFloorsChanged
from pdmuxd.daemon.events import (
    connect_engine,
    connect_gateway,
    connect_metrics,
    connect_refinement,
    connect_telemetry,
)
from pdmuxd.daemon.serving.lifecycle import GivePlace
from pdmuxd.daemon.settings import LoadedSettings
from pdmuxd.engine.link.messages import Hello, RequestRecord, TenantQueues


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that was built; nothing of it runs yet."""

    node: Node
    data: DataPlane
    learning: Learning
    admin: AdminPlane


def build(
    loaded: LoadedSettings,
    control_plane: ControlPlane,
    node: Node,
    *,
    admin_token: str,
    reread: Callable[[], LoadedSettings] | None = None,
    give_place: GivePlace | None = None,
) -> Parts:
    """All parts around `node`. `reread` reads the settings again, `give_place` starts another daemon."""
    data = build_data_plane(loaded.settings, control_plane, node, admin_token=admin_token)
    learning = build_learning(loaded.settings, control_plane, node)
    _connect(node, data, learning)
    admin = build_admin_plane(
        loaded,
        control_plane,
        node,
        data,
        learning,
        admin_token=admin_token,
        reread=reread,
        give_place=give_place,
    )
    return Parts(node=node, data=data, learning=learning, admin=admin)


def _connect(node: Node, data: DataPlane, learning: Learning) -> None:
    """The order matters: a tenant's metrics exist before it is served, and it is served before anyone is told
    about it."""
    bus = node.bus
    connect_metrics(bus, node.metrics)
    connect_gateway(bus, data.gateway)
    bus.subscribe(Hello, node.limiter.on_hello)
    bus.subscribe(RequestRecord, node.limiter.on_request)
    bus.subscribe(RequestRecord, data.first_tokens.on_request)
    bus.subscribe(TenantQueues, data.first_tokens.on_queues)
    data.tracing.connect(bus)
    connect_telemetry(bus, node.telemetry)
    connect_refinement(bus, learning.refinement)
    bus.subscribe(Hello, learning.stand_in.on_hello)
    connect_engine(bus, node.supervisor)
    bus.subscribe(DirectoryChanged, learning.caps.on_directory)
    bus.publish(TbtFloorsChanged(learning.caps.floors_s()))
