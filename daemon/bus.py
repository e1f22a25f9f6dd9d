"""A typed event bus: the publisher of an event does not know who receives it.

Events are values; their type says what happened. Handlers are called at once, in the publisher's thread (the
daemon's event loop), in the order in which they subscribed; they must neither block nor raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange
from pdmuxd.engine.link.messages import EngineSettings

EventT = TypeVar("EventT")


@dataclass(frozen=True, slots=True)
class DirectoryChanged:
    """Tenants, keys, targets or the profile in force are now those of `snapshot`.

    The others are what follows from it, where the thread that made the change has worked it out.
    """

    snapshot: DirectorySnapshot
    change: DirectoryChange | None = None
    settings: EngineSettings | None = None


@dataclass(frozen=True, slots=True)
class TbtFloorsChanged:
    """Steps are planned for no stricter TBT target than these, by tenant that is capped, in seconds."""

    floors_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DeliveryChanged:
    """Gaps between tokens are longer at clients than in the engine by `planned_s`, which steps leave."""

    planned_s: float


class EventBus:
    """Besides the events above it carries the supervisor's, and the engine's messages as they came."""

    def __init__(self) -> None:
        self._handlers: dict[type, list[Callable[[Any], object]]] = {}

    def subscribe(self, kind: type[EventT], handler: Callable[[EventT], object]) -> None:
        """Call `handler` with every event of just this type."""
        self._handlers.setdefault(kind, []).append(handler)

    def publish(self, event: object) -> None:
        """Tell all who subscribed to the event's type."""
        for handler in self._handlers.get(type(event), ()):
            handler(event)
