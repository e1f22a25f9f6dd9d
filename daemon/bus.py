"""A typed event bus: the publisher of an event does not know who receives it.

Events are values; their type says what happened. Handlers are called at once, in the publisher's thread (the
daemon's event loop), in the order in which they subscribed; they must neither block nor raise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pdmuxd.controlplane.node.engine_status import EngineState
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.engine.link.messages import EngineSettings

EventT = TypeVar("EventT")


@dataclass(frozen=True, slots=True)
class EngineServing:
    """Requests may be sent to `address`, until the next change of the engine's state."""

    address: EngineAddress


@dataclass(frozen=True, slots=True)
class EngineAccepting:
    """New requests may be taken: a drain has ended, or an engine serves that is not held."""


@dataclass(frozen=True, slots=True)
class EngineUnresponsive:
    """A serving engine has fallen silent, or is heard again."""

    is_unresponsive: bool


@dataclass(frozen=True, slots=True)
class EngineStateChanged:
    """The engine is now `starting`, `draining` or `down`."""

    state: EngineState
    reason: str | None


@dataclass(frozen=True, slots=True)
class DirectoryChanged:
    """Tenants, keys, targets or the profile in force are now those of `snapshot`.

    The others are what follows from it, where the thread that made the change has worked it out.
    """

    snapshot: DirectorySnapshot
    change: DirectoryChange | None = None
    settings: EngineSettings | None = None


class EventBus:
    """Besides the events above it carries the engine's messages, as they came over the link."""

    def __init__(self) -> None:
        self._handlers: dict[type, list[Callable[[Any], object]]] = {}

    def subscribe(self, kind: type[EventT], handler: Callable[[EventT], object]) -> None:
        """Call `handler` with every event of just this type."""
        self._handlers.setdefault(kind, []).append(handler)

    def publish(self, event: object) -> None:
        """Tell all who subscribed to the event's type."""
        for handler in self._handlers.get(type(event), ()):
            handler(event)
